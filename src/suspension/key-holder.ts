/** The keys that are good now: those of the settings, until `POST /config` brings others. */
import type { NamedKey } from "../key-list.ts";
import type { SuspensionKeys } from "./port.ts";

export interface SuspensionKeyHolder {
  /** To be asked for at each use: what was listed a moment ago may be retired. */
  current(): SuspensionKeys;
  /** From now on these and no others. There is no way back to none, or a caller could take the signature away. */
  replace(keys: readonly [NamedKey, ...NamedKey[]]): void;
}

export function holdSuspensionKeys(configured: SuspensionKeys): SuspensionKeyHolder {
  let keys = configured;
  return {
    current: () => keys,
    replace: (newKeys) => {
      keys = newKeys;
    },
  };
}
