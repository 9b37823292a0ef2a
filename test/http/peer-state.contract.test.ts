import { afterEach, expect, test } from "bun:test";
import { connect, type Socket } from "node:net";
import type { Connection, PeerState } from "../../src/http/peer-state.ts";
import { readPeerStates } from "../../src/http/peer-state.ts";

const closers: (() => void)[] = [];
afterEach(() => {
  for (const close of closers.splice(0)) close();
});

/** A server that sends without end, and the connection of the client that `request` opens to it. */
async function serve(hostname: string, address: string): Promise<{ connection: Connection; client: Socket }> {
  const { promise, resolve } = Promise.withResolvers<Connection>();
  const server = Bun.serve({
    hostname,
    port: 0,
    fetch(request, bunServer) {
      const peer = bunServer.requestIP(request);
      const localPort = bunServer.port;
      if (!peer || localPort === undefined) throw new Error("a request without a peer");
      resolve({ localPort, remoteAddress: peer.address, remotePort: peer.port });
      const block = new Uint8Array(64 << 10);
      return new Response(new ReadableStream({ pull: (controller) => controller.enqueue(block) }));
    },
  });
  closers.push(() => server.stop(true));
  const client = connect(server.port ?? 0, address);
  closers.push(() => client.destroy());
  client.on("error", () => {});
  client.pause();
  client.write("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  return { connection: await promise, client };
}

async function stateWhen(connection: Connection, holds: (state: PeerState | undefined) => boolean) {
  const end = performance.now() + 10_000;
  for (;;) {
    const [state] = await readPeerStates([connection]);
    if (holds(state)) return state;
    if (performance.now() > end) throw new Error(`did not come about; it is ${JSON.stringify(state)}`);
    await Bun.sleep(20);
  }
}

for (const [hostname, address] of [
  ["127.0.0.1", "127.0.0.1"],
  ["::", "127.0.0.1"],
  ["::", "::1"],
] as const) {
  test(`a reader at ${address} of a listener at ${hostname} that stops reading has its window closed`, async () => {
    const { connection, client } = await serve(hostname, address);
    let before = -1;
    const stalled = await stateWhen(connection, (state) => {
      // Full: nothing more is taken in and nothing is acknowledged.
      const isFull = state?.timer === "zero-window" && state.txQueueBytes === before;
      before = state?.txQueueBytes ?? -1;
      return isFull;
    });
    expect(stalled?.txQueueBytes).toBeGreaterThan(0);
    expect(stalled?.retransmits).toBe(0);
    client.resume();
    await stateWhen(connection, (state) => state !== undefined && state.timer !== "zero-window");
    client.destroy();
    await stateWhen(connection, (state) => state === undefined);
  });
}

test("connections are told apart, and one that never was is not there", async () => {
  const { connection } = await serve("127.0.0.1", "127.0.0.1");
  const never = { ...connection, remotePort: connection.remotePort === 1 ? 2 : 1 };
  const states = await readPeerStates([never, connection]);
  expect(states.map((state) => state !== undefined)).toEqual([false, true]);
});
