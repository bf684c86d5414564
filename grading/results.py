"""Celery's result backend on the server: chords count in it, nobody waits on it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from celery.backends.redis import RedisBackend
from celery.canvas import Signature
from celery.states import SUCCESS
from redis.exceptions import OutOfMemoryError, ReadOnlyError

PASSING = (OutOfMemoryError, ReadOnlyError)
"""What Redis answers while it has no room, or is a replica until it is made the first: it is asked again."""


RESULTS = "grader:results:"


def copy_key(machine: str, run_id: str) -> str:
    """Where a machine leaves a copy of a result for an hour: its message may be lost with who took it."""
    return f"{RESULTS}{machine}:{run_id}"


class UnwatchedRedis(RedisBackend):
    """Redis results without a subscription for every task that is sent.

    Celery subscribes a producer to each result it might wait for. Here results are read in SQL, so that would
    be a round trip a task, and a list of subscriptions that grows in processes that live for months.
    """

    def on_task_call(self, producer: Any, task_id: str) -> None:
        """Subscribe to nothing."""

    def add_pending_result(self, result: Any, weak: bool = False, start_drainer: bool = True) -> Any:
        """Wait for nothing."""
        return result

    def count(self, round_id: str, run_id: str, body: Signature) -> None:
        """A run of a round's chord has come to an end; the last one sends the body. Raises redis errors.

        Machines do not count themselves: they would have to write what belongs to all.
        """
        one = SimpleNamespace(id=run_id, group=round_id, group_index=None, chord=body)
        self.on_chord_part_return(one, SUCCESS, None)

    def exception_safe_to_retry(self, exc: BaseException) -> bool:
        """Whether a result that was refused may be stored a moment later."""
        return isinstance(exc, PASSING) or super().exception_safe_to_retry(exc)
