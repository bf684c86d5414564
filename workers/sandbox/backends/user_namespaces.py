"""The user namespace in which an ordinary user's boxes are made, so that fork servers may enter them.

A box of an ordinary user has a user namespace of its own. Whoever made that has all rights in it, but only
from the namespace around it: boxes and fork servers therefore lie in one more, which is made here.
"""

from __future__ import annotations

import os
import select
import subprocess
import threading
import weakref
from contextlib import suppress
from pathlib import Path

_START_S = 10.0
# it repeats what it is told, so that we know when it is in the namespace
_HOLDER = ("unshare", "--user", "--map-current-user", "--", "cat")


class NoNamespace(OSError):
    """The system gives us no user namespace."""


class SharedUsers:
    """One user namespace, which is there from the first use until nobody holds this any more."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._number: int | None = None

    def number(self) -> int | None:
        """A descriptor of it; None for root, whose boxes share root's. Raises NoNamespace."""
        if os.geteuid() == 0:
            return None
        with self._lock:
            if self._number is None:
                self._number = _made()
                weakref.finalize(self, os.close, self._number)
            return self._number


def _made() -> int:
    try:
        holder = subprocess.Popen(
            _HOLDER,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            cwd="/",
            env={"LANG": "C.UTF-8", "PATH": os.environ.get("PATH", os.defpath)},
        )
    except OSError as error:
        raise NoNamespace(f"no user namespace: {error}") from error
    with holder:  # the descriptor keeps the namespace when nobody is in it
        try:
            return _entered(holder)
        finally:
            holder.kill()


def _entered(holder: subprocess.Popen[bytes]) -> int:
    assert holder.stdin is not None
    assert holder.stdout is not None
    with suppress(BrokenPipeError):
        holder.stdin.write(b"\n")
    poll = select.poll()
    poll.register(holder.stdout, select.POLLIN)
    if not poll.poll(_START_S * 1000) or not holder.stdout.read(1):
        raise NoNamespace("no user namespace: unshare --user --map-current-user failed")
    place = Path(f"/proc/{holder.pid}/ns/user")
    try:
        return os.open(place, os.O_RDONLY)
    except OSError as error:
        raise NoNamespace(f"no user namespace: {error}") from error
