import { describe, expect, test } from "bun:test";
import { kernelKeys, parsePeerStates } from "../../src/http/peer-state.ts";

// As the kernel prints them: an IPv4 client on a `::` listener cut off, one on an IPv4 listener with its window
// closed and a probe on its way, one that takes everything, a listener, and one that we have closed.
const TABLE = `  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0000000000000000FFFF00000100004D0A:2631 0000000000000000FFFF00000200004D0A:DFFA 01 00000006:00000000 01:0000001B 00000002     0        0 22280 1 0000000000000000 20 4 24 10 -1
   1: 0100007F:2328 0100007F:E3B2 01 00133078:00000000 04:00000AD2 00000000     0        1 31337 2 0000000000000000 20 4 30 10 -1
   2: 0100007F:2328 0100007F:E3B4 01 00000000:00000000 00:00000000 00000000     0        0 31338 2 0000000000000000 20 4 30 10 -1
   3: 0100007F:2328 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 31339 2 0000000000000000 20 4 30 10 -1
   4: 0100007F:2328 0100007F:E3B6 04 00000037:00000000 01:000009D6 00000007     0        0 0 2 0000000000000000 20 4 30 10 -1
`;

test("a table gives what the peer has not acknowledged, and why nothing is sent", () => {
  expect(Object.fromEntries(parsePeerStates(TABLE))).toEqual({
    "2631 0000000000000000FFFF00000200004D0A:DFFA": { txQueueBytes: 6, retransmits: 2, probes: 0, timer: "retransmit" },
    "2328 0100007F:E3B2": { txQueueBytes: 0x133078, retransmits: 0, probes: 1, timer: "zero-window" },
    "2328 0100007F:E3B4": { txQueueBytes: 0, retransmits: 0, probes: 0, timer: "none" },
  });
});

describe("a connection is looked up under the kernel's spelling", () => {
  const keys = (remoteAddress: string) => kernelKeys({ localPort: 9000, remoteAddress, remotePort: 58_290 });

  test("of an IPv4 client, in both tables", () => {
    const expected = { v4: "2328 0100007F:E3B2", v6: "2328 0000000000000000FFFF00000100007F:E3B2" };
    expect(keys("127.0.0.1")).toEqual(expected);
    expect(keys("::ffff:127.0.0.1")).toEqual(expected);
    expect(keys("::ffff:7f00:1")).toEqual(expected);
  });

  test("of an IPv6 client", () => {
    expect(keys("::1")).toEqual({ v6: "2328 00000000000000000000000001000000:E3B2" });
    expect(keys("fe80::1:2%eth0")).toEqual({ v6: "2328 000080FE000000000000000002000100:E3B2" });
    expect(keys("2001:db8:1:2:3:4:5:6")).toEqual({ v6: "2328 B80D0120020001000400030006000500:E3B2" });
  });

  test("of what is no address, nowhere", () => {
    for (const text of ["", "localhost", "1:2:3", "1:2:3:4:5:6:7:8:9", "::g"]) expect(keys(text)).toEqual({});
  });
});
