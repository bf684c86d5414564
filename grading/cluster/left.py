"""What a machine leaves to others, since when, and until when that was to last."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from grading.cluster.routing import Choice


@dataclass
class Left:
    """Stages of which something waits that a machine with free slots does not take. `now` is of any clock."""

    since: dict[str, float] = field(default_factory=dict)
    due: dict[str, float] = field(default_factory=dict)
    """stage -> when others will have begun it all, as was foreseen when it was first left to them."""

    def note(self, now: float, waits: Iterable[str], choice: Choice) -> None:
        """A choice was made while something waited in these stages; none, as long as no slot is free."""
        left = set(waits) - {stage for stage, _ in choice.queues}
        self.since = {s: self.since.get(s, now) for s in left}
        due = {s: now + seconds for s, seconds in choice.leaves.items()} | self.due
        self.due = {s: due[s] for s in left if s in due}

    def left_s(self, now: float) -> Mapping[str, float]:
        """stage -> for how long it has been left."""
        return {stage: now - since for stage, since in self.since.items()}

    def late_s(self, now: float) -> Mapping[str, float]:
        """stage -> for how much longer than was foreseen; below zero while that time is not over."""
        return {stage: now - due for stage, due in self.due.items()}
