"""A forked process goes into a sandbox that bubblewrap has made, and gives up every right before it goes on.

Runs in the fork server (python_forkserver.py), before any code of a student. Linux only.
"""

from __future__ import annotations

TYPE_CHECKING = False  # the module typing takes a third of the start
if TYPE_CHECKING:
    from typing import Any

import ctypes
import os
import resource
from ctypes import c_int, c_uint32, c_ulong, c_ushort, c_void_p

_libc = ctypes.CDLL(None, use_errno=True)
_SET_DUMPABLE, _SET_SECCOMP, _CAPBSET_DROP, _SET_NO_NEW_PRIVS, _CAP_AMBIENT = 4, 22, 24, 38, 47
_FILTER, _CLEAR_ALL = 2, 4
_CAPABILITIES_3 = 0x20080522
_FIRST_FREE = 3


class _Filter(ctypes.Structure):
    """The kernel's `struct sock_fprog`."""

    _fields_ = [("count", c_ushort), ("program", c_void_p)]


def go_to(namespace: int) -> None:
    """Enter the namespace behind a descriptor; one of processes holds for children only. Raises OSError."""
    _done(_libc.setns(namespace, 0), "setns")


def enter(order: dict[str, Any], root: int, namespaces: tuple[int, ...]) -> None:
    """Into the sandbox: its namespaces, folders, limits and user, then without any right. Raises OSError."""
    os.setsid()
    for namespace in namespaces:
        go_to(namespace)
    os.fchdir(root)
    os.chroot(".")
    os.chdir("/box")
    for number, value in order["limits"]:
        resource.setrlimit(number, (value, value))
    _give_up_rights(order["uid"])


def take_streams(given: tuple[int, int]) -> None:
    """0 and 1 are the talk with the server, 2 is nothing; every other descriptor is closed."""
    nothing = os.open("/dev/null", os.O_WRONLY)
    first, second = (os.dup(number) for number in given)
    for source, target in ((first, 0), (second, 1), (nothing, 2)):
        os.dup2(source, target)
    os.closerange(_FIRST_FREE, 1 << 16)


def shut_off(program: bytes) -> None:
    """From here on the system calls that a sandbox may not make are refused. Raises OSError."""
    _prctl(_SET_NO_NEW_PRIVS, 1)
    if program:
        held = ctypes.create_string_buffer(program, len(program))
        what = _Filter(len(program) // 8, ctypes.cast(held, c_void_p))
        _done(_libc.prctl(c_int(_SET_SECCOMP), c_ulong(_FILTER), ctypes.byref(what), 0, 0), "seccomp")


def _give_up_rights(uid: int | None) -> None:
    """All of them; without a number the user stays who it is, as in each sandbox of an ordinary user."""
    capability = 0
    while _libc.prctl(c_int(_CAPBSET_DROP), c_ulong(capability), 0, 0, 0) == 0:
        capability += 1
    if capability == 0:
        raise OSError(ctypes.get_errno(), "capabilities cannot be given up")
    _prctl(_CAP_AMBIENT, _CLEAR_ALL)
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    none = (c_uint32 * 6)()
    _done(_libc.capset((c_uint32 * 2)(_CAPABILITIES_3, 0), none), "capset")
    _prctl(_SET_DUMPABLE, 1)  # as after an exec; otherwise its own /proc would be root's


def _prctl(what: int, value: int) -> None:
    _done(_libc.prctl(c_int(what), c_ulong(value), 0, 0, 0), "prctl")


def _done(returned: int, what: str) -> None:
    if returned:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
