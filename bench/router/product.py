"""The product against the emulated machines in compressed time: store, sweeper and a worker for each machine.

Submissions are stored as the web app stores them, without the web app.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from sqlalchemy import func, select

from bench.router.cost_model import STAGES
from bench.router.policies import homes
from bench.router.processes import EmulatedServers, Processes
from bench.router.protocols import mark
from bench.router.results import Ended, Plan
from bench.router.simulation import Arrival as Coming
from cli.dev.embedded_redis import start_redis
from grading.broker.dispatch import Dispatch, open_dispatch
from grading.checks.kinds.prose import Words
from grading.config.settings import load
from grading.documents import SubmittedFiles, UploadedFile, read
from grading.documents.limits import Limits
from grading.domain.permissions import Actor
from grading.domain.round_states import RoundState, RunState
from grading.domain.rubric import Criterion, Rubric
from grading.domain.second_opinions import SecondOpinionPolicy
from grading.domain.stages import SECOND_OPINION
from grading.store import Store, schema
from grading.store.accounts import users
from grading.store.assignments import versions
from grading.store.assignments.versions import NewVersion
from grading.store.reporting import operations
from grading.store.submissions import intake
from grading.store.submissions.intake import IncomingSubmission
from grading.store.tables import Assignment, Round, Run, SecondOpinion
from grading.store.trust import second_opinions
from grading.store.trust.second_opinions import OpinionState

BUDGET_S = 3600.0
MOST_TOKENS = 8_000
HEAD = """
[sandbox]
backend = "none"
"""
STAGE = """
[stages.{stage}]
budget_s = {budget:g}
max_output_tokens = {most}
"""
MACHINE = """
[[machines]]
name = "{name}"
role = "{role}"
slots = {slots}
{least}joins_after_s = {joins:g}
grace_s = {grace:g}
[machines.engines.{engine}]
url = "{url}"
[machines.engines.{engine}.options]
{options}
[machines.stages]
{stages}
"""


def config(plan: Plan, servers: EmulatedServers, *, tune: bool) -> str:
    """config.toml for these machines, with every interval divided.

    With `tune` machines find their slots by measurement.
    """
    made, of = [HEAD], plan.scenario.setting
    for stage in (*STAGES, SECOND_OPINION):
        made.append(STAGE.format(stage=stage, budget=BUDGET_S / plan.factor, most=MOST_TOKENS))
    for name, url in servers.urls.items():
        ollama = name.startswith("dgx")
        engine = "ollama" if ollama else "openai"
        home = homes(of)[name]
        order = [home, *(stage for stage in STAGES if stage != home)]
        models = {s: of.works[s].model.name for s in order}
        models[SECOND_OPINION] = models[home]  # it is loaded
        stages = [f'{s} = {{ engine = "{engine}", model = "{model}" }}' for s, model in models.items()]
        options = {"chunk_timeout": 60.0, "load_timeout": 600.0, "busy_timeout": 60.0}
        shown = [f"{key} = {value / plan.factor:g}" for key, value in options.items()]
        shown.append("num_ctx = 32768" if ollama else 'schema = "json_schema"')
        made.append(
            MACHINE.format(
                name=name,
                role="primary" if name.endswith("1") else "spare",
                slots=plan.slots,
                least="" if tune else f"least_slots = {plan.slots}\n",
                joins=2.0 / plan.factor,
                grace=5.0,
                engine=engine,
                url=url if ollama else f"{url}/v1",
                options="\n".join(shown),
                stages="\n".join(stages),
            )
        )
    return "".join(made)


COURSE = "router"
RUBRIC = Rubric(
    criteria=(
        Criterion(id="code", title="Code", points=60, checks=(Words(at_least=1),)),
        Criterion(id="reflection", title="Reflection", points=40, stage="feedback"),
    )
)
WORK = """# {mark}
# The mean is far above the median, so a few sales are very large.
sales <- read.csv("sales.csv")
mean(sales$amount); median(sales$amount)
"""
START_S = 60.0
LOOK_S = 0.05
"""Real seconds between two looks at the database."""


@dataclass
class Product:
    """The product, set up and ready for work; nothing is taken until `begin`."""

    folder: Path
    plan: Plan
    processes: Processes
    store: Store
    dispatch: Dispatch
    assignment: int
    students: Sequence[int]
    machines: tuple[str, ...]
    rounds: dict[str, int] = field(default_factory=dict)
    """round -> number of the submission"""
    came: dict[int, float] = field(default_factory=dict)
    """number -> real time of its coming, by this computer's clock"""

    def start(self, name: str, *command: str) -> None:
        """A process of the product."""
        launcher = [sys.executable, "-m", "bench.router.time_compression", f"{self.plan.factor:g}"]
        self.processes.start(name, [*launcher, "--config", str(self.folder / "config.toml"), *command])

    def start_all(self) -> None:
        """Everything, with all machines out of service, so that they begin together."""
        self._drain()
        self.start("store", "store")
        self.start("sweep", "sweep")
        for name in self.machines:
            self.start(name, "worker", name)
        self._until_ready()
        if self.plan.learn:
            self._learn()

    def _learn(self) -> None:
        """Work something off, which counts for nothing else."""
        first = len(self.plan.scenario.arrivals)
        for number, one in enumerate(self.plan.before, first):
            self.arrival(number, one)
        self.begin()
        enough = START_S + BUDGET_S * 2 / self.plan.factor
        self._until(lambda: self.over() >= self.plan.learn, enough, "something is learned")
        self._drain()
        self._until_ready()

    def _drain(self) -> None:
        with self.store.write() as session:
            for name in self.machines:
                operations.drain(session, name, "benchmark", "not yet")
        self.dispatch.registry.drain(self.machines)

    def _until_ready(self) -> None:
        self._until(lambda: self._ready() >= len(self.machines), START_S, "all machines send heartbeats")

    def _ready(self) -> int:
        return sum(state.alive and state.drained for state in self.dispatch.machines())

    def arrival(self, number: int, coming: Coming) -> None:
        """One submission, accepted and announced."""
        text = WORK.format(mark=mark(number, coming.output)).encode()
        work: SubmittedFiles = read([UploadedFile("work.R", text)], Limits())
        priority: Literal["interactive", "batch"] = "batch" if coming.priority == "batch" else "interactive"
        incoming = IncomingSubmission(self.assignment, self.students[number], "api", work, priority=priority)
        with self.store.write() as session:
            accepted = intake.accept_submission(session, incoming)
        self.rounds[accepted.round_id] = number
        self.came[number] = time.time()
        self.dispatch.announce(accepted.round_id)

    def want_opinions(self) -> None:
        """Second opinions on everything from now on."""
        with self.store.write() as session:
            assignment = session.get_one(Assignment, self.assignment)
            policy = SecondOpinionPolicy(which="all")
            second_opinions.set_policy(session, assignment, policy, Actor(user_id=1, administrator=True))

    def opinions_left(self) -> int:
        """Second opinions that are wanted and did not come yet, and graded rounds nobody has decided of."""
        row = SecondOpinion
        with self.store.read() as session:
            ended = session.scalar(select(func.count(row.id)).where(row.ended_at.is_not(None))) or 0
        return len(STAGES) * len(self.rounds) - ended

    def opinions_at(self, start: float) -> list[float]:
        """When each came, in emulated seconds."""
        given = (SecondOpinion.state == OpinionState.DONE, SecondOpinion.ended_at.is_not(None))
        with self.store.read() as session:
            moments = session.scalars(select(SecondOpinion.ended_at).where(*given)).all()
        return [(one.timestamp() - start) * self.plan.factor for one in moments if one is not None]

    def until_queued(self, count: int) -> None:
        """All that came is prepared."""
        self._until(lambda: self._count(RoundState.QUEUED) >= count, START_S + count, "all are prepared")

    def begin(self) -> None:
        """Machines take work from now on."""
        with self.store.write() as session:
            for name in self.machines:
                operations.undrain(session, name, "benchmark")
        self.dispatch.registry.drain([])
        self.dispatch.release()

    def over(self) -> int:
        """How many are graded, or given up."""
        return self._count(*(state for state in RoundState if state.final))

    def ended(self, start: float) -> list[Ended]:
        """What came of each; `start` is the real time that counts as 0."""
        factor = self.plan.factor
        with self.store.read() as session:
            columns = (Round.id, Round.state, Round.finished_at)
            rows = session.execute(select(*columns).where(Round.current)).all()
        return [
            Ended(
                self.rounds[row.id],
                (self.came[self.rounds[row.id]] - start) * factor,
                (row.finished_at.timestamp() - start) * factor,
                row.state == RoundState.GRADED,
            )
            for row in rows
            if row.finished_at is not None and self.rounds[row.id] < len(self.plan.scenario.arrivals)
        ]

    def opinion_runs(self, start: float) -> tuple[float, int, int]:
        """When the first was sent, how many before the last grade, how many were given back."""
        mine = (Run.stage == SECOND_OPINION,)
        last = select(func.max(Round.finished_at)).where(Round.current).scalar_subquery()
        with self.store.read() as session:
            first = session.scalar(select(func.min(Run.dispatched_at)).where(*mine))
            early = session.scalar(select(func.count()).where(*mine, Run.dispatched_at < last))
            back = session.scalar(select(func.count()).where(*mine, Run.state == RunState.LOST))
        since = (first.timestamp() - start) * self.plan.factor if first is not None else 0.0
        return since, early or 0, back or 0

    def _count(self, *states: RoundState) -> int:
        with self.store.read() as session:
            query = select(func.count()).select_from(Round).where(Round.state.in_(states), Round.current)
            return session.execute(query).scalar_one()

    def _until(self, reached: object, seconds: float, what: str) -> None:
        assert callable(reached)
        deadline = time.monotonic() + seconds
        while not reached():
            if time.monotonic() > deadline:
                raise TimeoutError(f"not within {seconds:g} s: {what}; see the logs in {self.folder}")
            time.sleep(LOOK_S)


def _furnish(store: Store, students: int) -> tuple[int, list[int]]:
    """An assignment and its students."""
    with store.write() as session:
        users.ensure_administrator(session)
        new = NewVersion("router", "Router", "r", "at_once", "1", rubric=RUBRIC)
        assignment, _, _ = versions.import_version(session, COURSE, new)
        course = versions.find_or_create_course(session, COURSE)
        found = [
            users.find_or_create_student(session, "local", f"s{number}", f"s{number}", "", course.id).id
            for number in range(students)
        ]
        return assignment.id, found


@contextmanager
def product(folder: Path, plan: Plan, servers: EmulatedServers, *, tune: bool) -> Iterator[Product]:
    """The product in this folder, with a Redis and a database of its own; ends with the context."""
    with ExitStack() as stack:
        redis = stack.enter_context(start_redis(folder / "redis"))
        (folder / "config.toml").write_text(config(plan, servers, tune=tune), encoding="utf-8")
        database = f"sqlite:///{folder / 'grader.db'}"
        addresses: Mapping[str, str] = {"GRADER_DATABASE_URL": database, "GRADER_REDIS_URL": redis.url}
        schema.upgrade(database)
        store = Store(database)
        stack.callback(store.close)
        dispatch = open_dispatch(load(folder / "config.toml", addresses))
        stack.callback(dispatch.celery.close)
        stack.callback(dispatch.registry.redis.close)
        processes = stack.enter_context(Processes(folder, addresses))
        assignment, students = _furnish(store, len(plan.scenario.arrivals) + plan.learn)
        machines = tuple(servers.urls)
        yield Product(folder, plan, processes, store, dispatch, assignment, students, machines)
