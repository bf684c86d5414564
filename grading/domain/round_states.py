"""States of a round, its stages, its runs; the priorities of rounds."""

from __future__ import annotations

from enum import StrEnum

PRIORITIES = ("interactive", "batch")
"""Of a round: somebody waits for it, or it is one of many."""


class RoundState(StrEnum):
    """Where one grading of one submission stands."""

    RECEIVED = "received"  # stored, evidence not yet computed
    QUEUED = "queued"  # evidence there, waiting for room on the machines
    RUNNING = "running"  # its stages are dispatched
    GRADED = "graded"  # all stages done
    PARTIAL = "partial"  # a stage is dead, another is done: points so far, no total
    FAILED = "failed"  # no stage gave a result

    @property
    def final(self) -> bool:
        """Whether nothing more happens by itself."""
        return self in (RoundState.GRADED, RoundState.PARTIAL, RoundState.FAILED)


IN_PROGRESS = (RoundState.RECEIVED, RoundState.QUEUED, RoundState.RUNNING)
"""States of a round that is not graded yet, and has not failed."""


class StageState(StrEnum):
    """Where one stage of a round stands."""

    WAITING = "waiting"
    DISPATCHED = "dispatched"
    RUNNING = "running"  # a machine holds the lease
    DONE = "done"
    FAILED = "failed"  # will be tried again
    DEAD = "dead"  # no more tries


class RunState(StrEnum):
    """Where one execution of a stage stands."""

    DISPATCHED = "dispatched"
    DONE = "done"
    FAILED = "failed"
    LOST = "lost"  # its machine died or its message vanished
    DUPLICATE = "duplicate"  # a valid result that came after the first
