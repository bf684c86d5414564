"""The world around the server, in one process: a queue without order or memory, and all that SQL says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from redis.exceptions import ConnectionError as RedisAway
from sqlalchemy import Row, select

from grading.broker.dispatch import Dispatch, Outgoing, Room
from grading.domain import stages
from grading.domain.round_states import PRIORITIES
from grading.store import Store
from grading.store.tables import Answer, Grade, Round, RoundStage, Run

STAGES = tuple(row.name for row in stages.STAGES.values() if row.always)


@dataclass(frozen=True)
class Network(Dispatch):
    """Takes what is sent instead of Redis; `fails_after` so many messages of a chunk, Redis is away."""

    sent: list[Outgoing] = field(default_factory=list)
    fails_after: list[int] = field(default_factory=list)

    def room(self) -> dict[tuple[str, str], Room]:
        return dict.fromkeys(product(STAGES, PRIORITIES), Room(4, 4))

    def tell_backlog(self, runs: Mapping[tuple[str, str], int]) -> None:
        pass

    def release(self) -> bool:
        return True

    def send(self, outgoing: Sequence[Outgoing], to: str = "") -> None:
        for one in outgoing:
            if self.fails_after:
                if self.fails_after[0] == 0:
                    raise RedisAway
                self.fails_after[0] -= 1
            self.sent.append(one)


@dataclass(frozen=True)
class Picture:
    """All that counts, as SQL has it: rows by their key."""

    rounds: dict[str, str]
    """round -> state"""
    stages: dict[tuple[str, str], Row[Any]]
    """(round, stage) -> state, tries, losses, runs, run_id"""
    runs: dict[str, Row[Any]]
    accepted: dict[tuple[str, str], list[str]]
    grades: dict[str, list[str]]
    currents: dict[str, int]
    """submission -> current rounds"""

    def essence(self) -> tuple[Any, ...]:
        """What a result that does not count must not change."""
        return self.rounds, self.stages, self.grades, self.accepted


ROUNDS = select(Round.id, Round.state, Round.submission_id, Round.current)
STAGE_ROWS = select(
    RoundStage.round_id,
    RoundStage.stage,
    RoundStage.state,
    RoundStage.tries,
    RoundStage.losses,
    RoundStage.runs,
    RoundStage.run_id,
)
RUNS = select(Run.id, Run.round_id, Run.stage, Run.state, Run.accepted)


def take_picture(store: Store) -> Picture:
    with store.read() as session:
        found = session.execute(ROUNDS).all()
        stages = session.execute(STAGE_ROWS).all()
        runs = session.execute(RUNS).all()
        graded = session.execute(select(Grade.__table__)).all()
    accepted: dict[tuple[str, str], list[str]] = {}
    for run in runs:
        if run.accepted:
            accepted.setdefault((run.round_id, run.stage), []).append(run.id)
    grades: dict[str, list[str]] = {}
    for grade in graded:
        grades.setdefault(grade.round_id, []).append(str(grade))
    return Picture(
        rounds={row.id: row.state for row in found},
        stages={(stage.round_id, stage.stage): stage for stage in stages},
        runs={run.id: run for run in runs},
        accepted=accepted,
        grades=grades,
        currents=dict(Counter(row.submission_id for row in found if row.current)),
    )


def states(rows: dict[Any, Any]) -> dict[Any, str]:
    return {key: row.state for key, row in rows.items()}


def expect_moves(before: dict[Any, str], after: dict[Any, str], allowed: set[tuple[str, str]]) -> None:
    moves = {(old, after.get(key, "gone")) for key, old in before.items()}
    unexpected = {(old, new) for old, new in moves if old != new} - allowed
    assert not unexpected, f"not allowed: {unexpected}"


def forget(store: Store) -> None:
    """End what an example that failed left open, so that the next one is alone."""
    over = [table.__table__ for table in (RoundStage, Grade, Run, Answer, Round)]
    with store.write() as session:
        for table in over:
            session.execute(table.delete())  # type: ignore[attr-defined]
