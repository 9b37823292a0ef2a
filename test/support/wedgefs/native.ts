/** The few calls of the C library that a filesystem in user space needs. Root and /dev/fuse are all that it asks for. */
import { dlopen, ptr } from "bun:ffi";

const libc = dlopen("libc.so.6", {
  mount: { args: ["ptr", "ptr", "ptr", "u64", "ptr"], returns: "i32" },
  umount2: { args: ["ptr", "i32"], returns: "i32" },
  poll: { args: ["ptr", "u64", "i32"], returns: "i32" },
  open: { args: ["ptr", "i32"], returns: "i32" },
  close: { args: ["i32"], returns: "i32" },
  read: { args: ["i32", "ptr", "u64"], returns: "i64" },
  write: { args: ["i32", "ptr", "u64"], returns: "i64" },
}).symbols;

const O_RDWR_NONBLOCK_CLOEXEC = 2 | 0o4000 | 0o2000000;
const MS_NOSUID_NODEV = 2 | 4;
const MNT_FORCE = 1;
const MNT_DETACH = 2;
const POLLIN = 1;
const POLLERR = 8;

const text = (value: string): Buffer => Buffer.from(`${value}\0`);

/** The connection to the kernel, already mounted at `mountPoint`. Throws what went wrong. */
export function mountFuse(mountPoint: string): number {
  const fd = libc.open(ptr(text("/dev/fuse")), O_RDWR_NONBLOCK_CLOEXEC);
  if (fd < 0) throw new Error("/dev/fuse cannot be opened");
  const options = text(`fd=${fd},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions`);
  const [source, target, type] = [text("wedgefs"), text(mountPoint), text("fuse")];
  if (libc.mount(ptr(source), ptr(target), ptr(type), MS_NOSUID_NODEV, ptr(options)) !== 0) {
    throw new Error(`${mountPoint} cannot be mounted: that takes root`);
  }
  return fd;
}

/** Takes the mount away at once, and with it every call that waits there. True when there was one. */
export function unmount(mountPoint: string): boolean {
  return libc.umount2(ptr(text(mountPoint)), MNT_FORCE | MNT_DETACH) === 0;
}

export function closeDevice(fd: number): void {
  libc.close(fd);
}

/** The bytes of the next request, or undefined when there is none. They are good until the next call. */
export function readRequest(fd: number, buffer: Buffer): Buffer | undefined {
  const bytes = Number(libc.read(fd, ptr(buffer), buffer.length));
  return bytes > 0 ? buffer.subarray(0, bytes) : undefined;
}

export function writeReply(fd: number, reply: Buffer): void {
  libc.write(fd, ptr(reply), reply.length);
}

export interface Ready {
  readonly request: boolean;
  readonly command: boolean;
  /** Unmounted by somebody else, or aborted. */
  readonly gone: boolean;
}

const polled = Buffer.alloc(16);

/** Waits for a request (`fd` -1: not for those) or something on stdin. */
export function waitFor(fd: number, timeoutMs: number): Ready {
  polled.fill(0);
  polled.writeInt32LE(fd, 0);
  polled.writeInt16LE(POLLIN, 4);
  polled.writeInt32LE(0, 8);
  polled.writeInt16LE(POLLIN, 12);
  if (libc.poll(ptr(polled), 2, timeoutMs) <= 0) return { request: false, command: false, gone: false };
  const [device, stdin] = [polled.readInt16LE(6), polled.readInt16LE(14)];
  return { request: (device & POLLIN) !== 0, command: stdin !== 0, gone: (device & POLLERR) !== 0 };
}
