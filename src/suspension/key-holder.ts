/** The keys that are good now: those of the settings, until `POST /config` brings others. */
import { parseKeyList } from "../key-list.ts";
import type { SuspensionKeys } from "./port.ts";

export interface SuspensionKeyHolder {
  /** To be asked for at each use: what was listed a moment ago may be retired. */
  current(): SuspensionKeys;
  /**
   * From now on these and no others: a list as in SUSPENSION_KEYS, checked before. There is no way back to none, or
   * whoever may configure could take the signatures away. Throws for a list that is none.
   */
  replace(list: string): void;
}

export function holdSuspensionKeys(configured: SuspensionKeys): SuspensionKeyHolder {
  let keys = configured;
  return {
    current: () => keys,
    replace(list) {
      const parsed = parseKeyList(list);
      if (typeof parsed === "string") throw new Error(`suspension keys: ${parsed}`);
      keys = parsed;
    },
  };
}
