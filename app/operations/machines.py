"""The machines as staff see them, on the page and through the API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from app.web.eta import expecting
from app.web.services import services
from grading.broker.machine_status import Condition, MachineState, condition, machines_that_differ
from grading.domain.model_digests import Difference
from grading.store.reporting import operations
from grading.store.reporting.operations import RecentRun, list_recent_runs


@dataclass(frozen=True)
class SeenMachine:
    """A machine, how it is, and what it did last."""

    state: MachineState
    condition: Condition
    last: Sequence[RecentRun]
    drained_why: str = ""
    out: bool = False
    """An operator took it out, whether it has heard of that yet or not."""

    @property
    def word(self) -> str:
        """How it is, in one word."""
        state = self.state
        if state.hung:
            return "hung"
        if state.drained:
            return "out"
        if not state.alive:
            return "down"
        health = self.condition.health
        slow = health is not None and health < SLOW
        return "broken" if self.condition.circuits else "slow" if slow else "up"


SLOW = 0.75
"""Below this part of its usual speed a machine is called slow."""


@dataclass(frozen=True)
class Seen:
    """All of them, and what waits."""

    machines: Sequence[SeenMachine]
    queues: Mapping[str, int] | None
    """Messages in each queue; nothing while Redis is away."""
    waiting: Mapping[str, int]
    """priority -> hand-ins in the database that were not sent."""
    differences: Sequence[Difference]


def look() -> Seen:
    """What Redis and the database tell now."""
    with services().store.read_autocommit() as session:
        return look_in(session)


def look_in(session: Session) -> Seen:
    """The same, where the database is being looked at already."""
    given = services()
    reasons, last = operations.list_drained(session), list_recent_runs(session)
    waiting = expecting().waiting(session)
    states = given.dispatch.machines()
    seen = [
        SeenMachine(state, condition(state), last.get(one, ()), reasons.get(one, ""), out=one in reasons)
        for one, state in ((state.name, state) for state in states)
    ]
    return Seen(seen, given.dispatch.backlog(), waiting, machines_that_differ(states))
