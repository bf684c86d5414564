"""For tests of what happens over years: old rows, whole tables, and machines that answer at once."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import func, select

from grading.broker import celery_app
from grading.broker.heartbeats import Heartbeat
from grading.config.settings import load
from grading.domain.round_states import RoundState, StageState
from grading.domain.stages import STAGES
from grading.store import Store
from grading.store.learning_platforms import all_tables
from grading.store.rounds.lifecycle import Recorded
from grading.store.tables import Round, RoundStage
from tests.support.factories import result
from tests.support.system import close_dispatch
from workers.server import record
from workers.server.context import Server, open_server
from workers.server.sweeper import Sweeper

DAY_S = 86_400.0


def redis_rows(redis: Any) -> list[str]:
    """All keys of a Redis with all they hold, as text."""
    read: dict[str, Callable[[str], Any]] = {
        "string": redis.get,
        "list": lambda key: redis.lrange(key, 0, -1),
        "hash": redis.hgetall,
        "zset": lambda key: redis.zrange(key, 0, -1),
        "set": redis.smembers,
        "none": lambda _key: "gone between the two questions",
    }
    return [f"{key} {read[redis.type(key)](key)}" for key in redis.scan_iter()]


def shapes(word: str) -> list[bytes]:
    """A word as it may stand in bytes: as it is, and within base64 at any of its three offsets."""
    encoded = [base64.b64encode(b"\0" * shift + word.encode()).rstrip(b"=") for shift in range(3)]
    return [word.encode(), *(text[start:-1] for text, start in zip(encoded, (0, 2, 3), strict=True))]


def everything(store: Store, *leave_out: str) -> dict[str, list[Any]]:
    """All rows of all tables, in order."""
    with store.read() as session:
        return {
            table.name: sorted(tuple(map(repr, row)) for row in session.execute(select(table)))
            for table in all_tables().sorted_tables
            if table.name not in leave_out
        }


@dataclass
class Clock:
    """A clock that tests set."""

    at: float = 1000.0

    def __call__(self) -> float:
        return self.at


@dataclass
class Played:
    """A server side with a machine that answers every message at once, and time that flies."""

    server: Server
    sweeper: Sweeper
    clock: Clock

    @property
    def store(self) -> Store:
        return self.server.store

    def heartbeat(self) -> None:
        placed = {stage: {"engine": "instant", "model": "m"} for stage in STAGES}
        self.server.dispatch.registry.heartbeat(
            Heartbeat("played", "dgx-spark-2", 4, 0, placed, role="spare")
        )

    def pass_time(self, seconds: float = 60.0) -> None:
        """Time passes in SQL and for the sweeper."""
        self.store.clock_offset_s += seconds
        self.clock.at += seconds

    def messages(self) -> Iterator[dict[str, Any]]:
        """The jobs that wait in the stages' queues, taken out."""
        redis: Any = self.server.dispatch.registry.redis
        for name in celery_app.stage_queues(list(STAGES)):
            while row := redis.rpop(name):
                _, kwargs, _ = json.loads(base64.b64decode(json.loads(row)["body"]))
                yield kwargs["job"]

    def answer(self) -> list[Recorded]:
        """Do all that waits."""
        jobs = self.messages()
        return record.record(
            self.server, [result(job["run_id"], job["round_id"], job["stage"]) for job in jobs]
        )

    def work_off(self, steps: int = 12) -> Counter[str]:
        """Sweep and answer until every round is final; how many results had which outcome."""
        outcomes: Counter[str] = Counter()
        for _ in range(steps):
            self.heartbeat()
            self.sweeper.step()
            outcomes.update(recorded.outcome for recorded in self.answer())
            if not self.open_rounds():
                return outcomes
            self.pass_time()
        raise AssertionError(f"still open: {self.open_rounds()}")

    def open_rounds(self) -> int:
        final = [state for state in RoundState if state.final]
        with self.store.read() as session:
            return session.execute(select(func.count()).where(Round.state.not_in(final))).scalar_one()

    def stages(self, round_id: str) -> dict[str, StageState]:
        with self.store.read() as session:
            rows = session.scalars(select(RoundStage).where(RoundStage.round_id == round_id))
            return {row.stage: StageState(row.state) for row in rows}


@contextmanager
def played(database_url: str, redis_url: str, root: Path) -> Iterator[Played]:
    """A server side on these two, with the machines of the repository's config.toml."""
    environ = {"GRADER_DATABASE_URL": database_url, "GRADER_REDIS_URL": redis_url}
    server, clock = open_server(load(root / "config.toml", environ)), Clock()
    try:
        yield Played(server, Sweeper(server, clock), clock)
    finally:
        close_dispatch(server.dispatch)
        server.store.close()


Fresh = Callable[..., str]
