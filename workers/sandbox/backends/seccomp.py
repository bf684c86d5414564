"""The system calls that a sandbox may not make, as a BPF program built with libseccomp."""

from __future__ import annotations

import ctypes
import errno
import functools
import os
from collections.abc import Iterator

LIBRARY = "libseccomp.so.2"
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_OPTIMIZE, _BINARY_TREE = 8, 2
_NOT_EQUAL, _MASKED_EQUAL = 1, 7
_LOW_32 = 0xFFFFFFFF

# Looking into other processes, changing the view of the system, the kernel's rarely used doors, memory that
# belongs to no process, which therefore could not be counted, and what is taken out of a quota that the whole
# computer or user shares (docs/explanation/sandbox.md lists those).
DENIED = """
ptrace process_vm_readv process_vm_writev process_madvise process_mrelease kcmp pidfd_getfd
mount umount umount2 pivot_root chroot unshare setns open_tree move_mount fsopen fsconfig fsmount fspick
mount_setattr open_by_handle_at name_to_handle_at
add_key request_key keyctl bpf perf_event_open userfaultfd io_uring_setup io_uring_enter io_uring_register
kexec_load kexec_file_load init_module finit_module delete_module create_module query_module get_kernel_syms
reboot swapon swapoff quotactl quotactl_fd syslog acct settimeofday clock_settime clock_adjtime adjtimex stime
sethostname setdomainname iopl ioperm vhangup uselib sysfs ustat _sysctl nfsservctl lookup_dcookie
fanotify_init fanotify_mark vm86 vm86old modify_ldt mbind set_mempolicy migrate_pages move_pages
memfd_create memfd_secret shmget shmat shmctl msgget msgsnd msgrcv msgctl semget semop semctl semtimedop
io_setup io_submit io_destroy io_cancel io_getevents io_pgetevents
inotify_init inotify_init1 inotify_add_watch epoll_create epoll_create1
mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr seccomp
""".split()
_NEW_NAMESPACES = (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000)
_AF_UNIX = 1
# buffers of the kernel's size, not of the sender's choice; filters are compiled into memory of which the
# whole computer has a fixed amount (SO_SNDBUF, SO_ATTACH_FILTER, _BPF, _REUSEPORT_CBPF, _REUSEPORT_EBPF)
_SOCKET_OPTIONS = (7, 26, 50, 51, 52)
_PR_SET_SECCOMP = 22
_TERMINAL_INPUT = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX: type into a terminal
_MAP_SHARED_ANONYMOUS = 0x21


class _Comparison(ctypes.Structure):
    """A condition on one argument; `first` is the mask where there is one."""

    _fields_ = [
        ("arg", ctypes.c_uint),
        ("op", ctypes.c_int),
        ("first", ctypes.c_uint64),
        ("second", ctypes.c_uint64),
    ]


def _rules() -> Iterator[tuple[str, int, _Comparison | None]]:
    """System call, the error it gives, and when."""
    for name in DENIED:
        yield name, errno.EPERM, None
    yield "clone3", errno.ENOSYS, None  # its flags lie in memory; C libraries fall back to clone
    for flag in _NEW_NAMESPACES:
        yield "clone", errno.EPERM, _Comparison(0, _MASKED_EQUAL, flag, flag)
    for name in ("socket", "socketpair"):
        yield name, errno.EACCES, _Comparison(0, _NOT_EQUAL, _AF_UNIX, 0)
    for request in _TERMINAL_INPUT:
        yield "ioctl", errno.EPERM, _Comparison(1, _MASKED_EQUAL, _LOW_32, request)
    for option in _SOCKET_OPTIONS:
        yield "setsockopt", errno.EPERM, _Comparison(2, _MASKED_EQUAL, _LOW_32, option)
    yield "prctl", errno.EPERM, _Comparison(0, _MASKED_EQUAL, _LOW_32, _PR_SET_SECCOMP)
    yield "personality", errno.EPERM, _Comparison(0, _NOT_EQUAL, _LOW_32, 0)  # asking is allowed
    shared = _Comparison(3, _MASKED_EQUAL, _MAP_SHARED_ANONYMOUS, _MAP_SHARED_ANONYMOUS)
    yield "mmap", errno.EPERM, shared


def _build(library: ctypes.CDLL) -> bytes:
    library.seccomp_init.restype = ctypes.c_void_p
    context = library.seccomp_init(ctypes.c_uint32(_ALLOW))
    if not context:
        raise OSError("libseccomp could not start a filter")
    handle = ctypes.c_void_p(context)
    try:
        library.seccomp_attr_set(handle, _OPTIMIZE, ctypes.c_uint32(_BINARY_TREE))  # from 2.5 on; only faster
        for name, error, when in _rules():
            number = library.seccomp_syscall_resolve_name(name.encode())
            if number < 0:  # unknown on this processor or to this version
                continue
            count, array = (1, ctypes.byref(when)) if when is not None else (0, None)
            failed = library.seccomp_rule_add_array(
                handle, ctypes.c_uint32(_ERRNO | error), number, count, array
            )
            if failed:
                raise OSError(-failed, f"libseccomp refused the rule for {name}")
        return _export(library, handle)
    finally:
        library.seccomp_release(handle)


def _export(library: ctypes.CDLL, handle: ctypes.c_void_p) -> bytes:
    descriptor = os.memfd_create("seccomp")
    try:
        failed = library.seccomp_export_bpf(handle, descriptor)
        if failed:
            raise OSError(-failed, "libseccomp could not write the filter")
        return os.pread(descriptor, 1 << 20, 0)
    finally:
        os.close(descriptor)


@functools.cache
def program() -> bytes:
    """The filter in the kernel's form; empty where libseccomp is missing or cannot build it."""
    try:
        return _build(ctypes.CDLL(LIBRARY))
    except (OSError, AttributeError):
        return b""
