"""Who may generate on a machine now: many runs together, or one that must be alone."""

from __future__ import annotations

import threading

from workers.machine.engines.base import Cancel


class Gate:
    """A lock with two ways in: in company, or alone. Whoever waits to be alone holds back newcomers.

    A run that was lost together with others may be the one that killed the process; alone it takes nobody
    along.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._alone = False
        self._waiting_alone = 0

    def _open(self, alone: bool) -> bool:
        if alone:
            return self._inside == 0
        return not self._alone and self._waiting_alone == 0

    def _go_in(self, alone: bool) -> None:
        self._inside += 1
        self._alone = alone

    def enter_now(self, *, alone: bool) -> bool:
        """Go in if that is possible without waiting."""
        with self._changed:
            if not self._open(alone):
                return False
            self._go_in(alone)
            return True

    def enter(self, *, alone: bool, cancel: Cancel) -> bool:
        """Go in, after waiting for the others if need be; False when it was cancelled before."""
        with cancel.on_cancel(self._look_again), self._changed:
            self._waiting_alone += alone
            try:
                self._changed.wait_for(lambda: cancel.cancelled or self._open(alone))
                if cancel.cancelled:
                    return False
                self._go_in(alone)
                return True
            finally:
                self._waiting_alone -= alone
                self._changed.notify_all()

    def _look_again(self) -> None:
        with self._changed:
            self._changed.notify_all()

    @property
    def awaited(self) -> bool:
        """Whether somebody waits to be alone."""
        return self._waiting_alone > 0

    @property
    def shut(self) -> bool:
        """Whether nobody could go in beside others now."""
        return not self._open(alone=False)

    def leave(self) -> None:
        """Come out and let others in."""
        with self._changed:
            self._inside -= 1
            self._alone = False
            self._changed.notify_all()
