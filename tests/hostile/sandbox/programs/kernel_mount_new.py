# Tries: mounts by the new calls: open_tree, fsopen, move_mount, mount_setattr, pivot_root, chroot
# End: finished
# Cases: 1
# Tests: -
import ctypes
import os

ARM = os.uname().machine == "aarch64"


def total(xs):
    return sum(xs)


libc = ctypes.CDLL(None, use_errno=True)
tree = libc.syscall(428, -100, b"/", 1 | 0x8000)
if tree >= 0:
    print("@REACHED@ open_tree")
if libc.syscall(430, b"tmpfs", 0) >= 0:
    print("@REACHED@ fsopen")
if libc.syscall(442, -100, b"/usr", 0x8000, (ctypes.c_uint64 * 4)(0, 1, 0, 0), 32) == 0:
    print("@REACHED@ mount_setattr")
if libc.syscall(41 if ARM else 155, b"/tmp", b"/tmp") == 0:
    print("@REACHED@ pivot_root")
try:
    os.chroot("/tmp")
    print("@REACHED@ chroot")
except OSError as error:
    print(error)
