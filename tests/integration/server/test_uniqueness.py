"""Messages in any order, several times or never, machines lost at any moment: nothing counts twice, all ends.

Hypothesis plays the queue and the machines against the server's own functions on a real database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from grading.broker.dispatch import Outgoing, open_dispatch
from grading.config.settings import Config, Database, Machine, Placement
from grading.domain.jobs import Result
from grading.domain.messages import verbatim
from grading.domain.round_states import RoundState, RunState, StageState
from grading.store import Store, schema
from grading.store.rounds import lifecycle, queue, retry
from grading.store.rounds.lifecycle import MAX_LOSSES, MAX_TRIES, Loss
from tests.integration.server.world import STAGES, Network, expect_moves, forget, states, take_picture
from tests.support.factories import add_assignment, begin_round, begin_stage, result, submit
from tests.support.system import close_dispatch
from workers.server import record
from workers.server.admit import admit_runs
from workers.server.context import Server
from workers.server.prepare import prepare

STEPS = 50
MOST_ROUNDS = 3
ANSWERS: tuple[dict[str, Any], ...] = (
    *[{}] * 4,
    {"ok": False, "retry": "elsewhere"},
    {"ok": False, "retry": "later"},
    {"ok": False, "retry": "never"},
    {"output": {"judgements": "all fine"}},  # which is not what the schema asks for
)
ROUND_MOVES = {
    ("received", "queued"),
    ("received", "failed"),
    ("queued", "running"),
    ("running", "graded"),
    ("running", "partial"),
    ("running", "failed"),
}
STAGE_MOVES = {
    ("waiting", "dispatched"),
    ("dispatched", "done"),
    ("dispatched", "failed"),
    ("dispatched", "dead"),
    ("failed", "dispatched"),
    ("failed", "done"),
}
RUN_MOVES = {("dispatched", end) for end in ("done", "failed", "duplicate", "lost")} | {
    ("lost", end) for end in ("done", "failed", "duplicate")
}
REPLAYED = {("partial", "running"), ("failed", "running"), ("dead", "failed")}


class Uniqueness(RuleBasedStateMachine):
    """The world around the server: students, a queue without order or memory, machines that come and go."""

    server: Server
    assignment: int
    known_rounds = Bundle("known_rounds")
    flying = Bundle("flying")
    """Results on their way; they may arrive any number of times."""

    def __init__(self) -> None:
        super().__init__()
        self.network.sent.clear()
        self.network.fails_after.clear()
        self.store.clock_offset_s = 0.0
        forget(self.store)
        self.students = 0
        self.replayed = False
        self.before = take_picture(self.store)

    @property
    def store(self) -> Store:
        return self.server.store

    @property
    def network(self) -> Network:
        assert isinstance(self.server.dispatch, Network)
        return self.server.dispatch

    # --- what may happen ------------------------------------------------------------------------------

    @initialize(target=known_rounds)
    def two_rounds_are_under_way(self) -> Any:
        under_way = [self.submit() for _ in range(2)]
        for round_id in under_way:
            prepare(self.server, round_id)
        admit_runs(self.server)
        self.before = take_picture(self.store)
        return multiple(*under_way)

    @precondition(lambda self: self.students < MOST_ROUNDS)
    @rule(target=known_rounds)
    def submits(self) -> str:
        return self.submit()

    def submit(self) -> str:
        self.students += 1
        return submit(self.store, self.assignment, f"s{self.students}").round_id

    @rule(round_id=known_rounds)
    def prepares(self, round_id: str) -> None:
        prepare(self.server, round_id)

    @rule(after_s=st.sampled_from([0.0, 20.0, 100.0]), redis_dies_after=st.none() | st.integers(0, 2))
    def the_sweeper_releases(self, after_s: float, redis_dies_after: int | None) -> None:
        self.releases(after_s, redis_dies_after)

    def releases(self, after_s: float, redis_dies_after: int | None) -> None:
        self.store.clock_offset_s += after_s
        self.network.fails_after[:] = [] if redis_dies_after is None else [redis_dies_after]
        admit_runs(self.server)
        self.network.fails_after.clear()

    @rule(round_id=known_rounds, stage=st.sampled_from(STAGES))
    def another_process_begins_what_it_saw_a_while_ago(self, round_id: str, stage: str) -> None:
        with self.store.write() as session:
            orders = [*begin_round(session, round_id), begin_stage(session, round_id, stage)]
        for order in filter(None, orders):
            self.network.sent.append(Outgoing(order.run_id, round_id, order.stage, order.priority, {}))

    @rule(target=flying, data=st.data(), answer=st.sampled_from(ANSWERS), arrives=st.booleans())
    def a_machine_answers(self, data: st.DataObject, answer: dict[str, Any], arrives: bool) -> Any:
        """Also for a run that was lost, or a second time, and with another answer."""
        if not self.network.sent:
            return multiple()
        sent = data.draw(st.sampled_from(self.network.sent), label="run")
        made = result(sent.run_id, sent.round_id, sent.stage, **answer)
        if arrives:
            self.arrives(made)
        return made

    @rule(answer=flying)
    def one_arrives_late_or_again(self, answer: Result) -> None:
        self.arrives(answer)

    def arrives(self, answer: Result) -> None:
        recorded = record.record(self.server, [answer])[0]
        assert recorded.outcome != "unknown"
        if recorded.outcome == "duplicate":
            assert take_picture(self.store).essence() == self.before.essence()

    @rule(answer=flying, other=flying, what=st.sampled_from(["run", "round", "stage"]))
    def a_forged_result_arrives(self, answer: Result, other: Result, what: str) -> None:
        changes = {
            "run": {"run_id": "f" * 32},
            "round": {"round_id": other.round_id if other.round_id != answer.round_id else "f" * 32},
            "stage": {"stage": next(stage for stage in STAGES if stage != answer.stage)},
        }
        forged = answer.model_copy(update=changes[what])
        assert record.record(self.server, [forged])[0].outcome == "unknown"
        assert take_picture(self.store).essence() == self.before.essence()

    @rule(data=st.data(), loss=st.sampled_from(["unbegun", "alone"]))
    def a_run_is_lost(self, data: st.DataObject, loss: Loss) -> None:
        for run_id in self.draw_runs(data, 1):
            self.lose(run_id, loss)

    @rule(data=st.data())
    def a_machine_dies_with_several_runs(self, data: st.DataObject) -> None:
        for run_id in self.draw_runs(data, 3):
            self.lose(run_id, "together")

    @rule(data=st.data(), answers=st.permutations(ANSWERS), old_first=st.booleans())
    def a_lost_run_and_the_one_in_its_place_both_answer(
        self, data: st.DataObject, answers: list[dict[str, Any]], old_first: bool
    ) -> None:
        for run_id in self.draw_runs(data, 1):
            old = next(sent for sent in self.network.sent if sent.run_id == run_id)
            self.lose(run_id, "alone")
            self.everything_is_single_and_moves_forward()
            self.releases(100.0, None)
            place = (old.round_id, old.stage)
            new = [sent for sent in self.network.sent if (sent.round_id, sent.stage) == place][-1]
            for sent, answer in zip((old, new) if old_first else (new, old), answers, strict=False):
                self.everything_is_single_and_moves_forward()
                self.arrives(result(sent.run_id, sent.round_id, sent.stage, **answer))

    @rule(round_id=known_rounds)
    def somebody_combines(self, round_id: str) -> None:
        record.combine(self.server, round_id)

    @rule()
    def the_sweeper_combines(self) -> None:
        with self.store.read() as session:
            found = queue.list_stuck_rounds(session, 10)
        for round_id in found:
            record.combine(self.server, round_id)

    @rule(round_id=known_rounds)
    def somebody_replays(self, round_id: str) -> None:
        with self.store.write() as session:
            self.replayed = retry.retry_round(session, round_id, "test")

    def draw_runs(self, data: st.DataObject, most: int) -> list[str]:
        if not self.network.sent:
            return []
        ids = list(dict.fromkeys(sent.run_id for sent in self.network.sent))
        return data.draw(st.lists(st.sampled_from(ids), min_size=1, max_size=most, unique=True), label="runs")

    def lose(self, run_id: str, loss: Loss) -> None:
        with self.store.write() as session:
            to_combine = lifecycle.mark_lost(session, run_id, verbatim("gone"), loss)
        if to_combine is not None:
            record.combine(self.server, to_combine)

    # --- what must hold after each step ---------------------------------------------------------------

    @invariant()
    def everything_is_single_and_moves_forward(self) -> None:
        picture, before = take_picture(self.store), self.before
        assert all(len(ids) == 1 for ids in picture.accepted.values()), "two accepted runs of a stage"
        assert all(len(grades) == 1 for grades in picture.grades.values()), "two grades of a round"
        assert set(picture.currents.values()) <= {1}, "two current rounds of a submission"
        replayed = REPLAYED if self.replayed else set()
        expect_moves(before.rounds, picture.rounds, ROUND_MOVES | replayed)
        expect_moves(states(before.stages), states(picture.stages), STAGE_MOVES | replayed)
        expect_moves(states(before.runs), states(picture.runs), RUN_MOVES)
        for key, stage in picture.stages.items():
            assert stage.tries <= MAX_TRIES
            assert stage.losses <= MAX_LOSSES
            assert stage.runs == sum((run.round_id, run.stage) == key for run in picture.runs.values())
            assert (stage.state == StageState.DONE) == (key in picture.accepted)
        for key, ids in before.accepted.items():
            assert picture.accepted.get(key) == ids, "an accepted run was replaced"
        for round_id, grade in before.grades.items():
            assert picture.grades.get(round_id) == grade or self.replayed, "a grade changed"
        graded = {round_id for round_id, state in picture.rounds.items() if state == RoundState.GRADED}
        assert graded <= set(picture.grades)
        self.before, self.replayed = picture, False

    # --- and in the end -------------------------------------------------------------------------------

    def teardown(self) -> None:
        """From any state, working machines, a sweeper and time bring every round to its end."""
        for _ in range(2 * MAX_TRIES + 2):
            self.recover()
        open_ones = [id_ for id_, state in self.before.rounds.items() if not RoundState(state).final]
        assert open_ones == []
        for round_id, state in self.before.rounds.items():
            if state == RoundState.GRADED:
                assert all((round_id, stage) in self.before.accepted for stage in STAGES)

    def recover(self) -> None:
        """What happens to everything when nothing goes wrong for a while."""
        for round_id, state in self.before.rounds.items():
            if state == RoundState.RECEIVED:
                prepare(self.server, round_id)
        self.everything_is_single_and_moves_forward()
        self.store.clock_offset_s += 100.0
        admit_runs(self.server)
        self.everything_is_single_and_moves_forward()
        sent = {one.run_id for one in self.network.sent}
        for run_id, run in self.before.runs.items():
            if run.state != RunState.DISPATCHED:
                continue
            if run_id in sent:
                record.record(self.server, [result(run_id, run.round_id, run.stage)])
            else:
                self.lose(run_id, "unbegun")
        self.the_sweeper_combines()
        self.everything_is_single_and_moves_forward()


@pytest.fixture
def server(fresh_database: Callable[..., str]) -> Iterator[Server]:
    placements = {stage: Placement(engine="instant", model="m") for stage in STAGES}
    url = fresh_database(schema.upgrade)
    config = Config(machines=(Machine(name="one", stages=placements),), database=Database(url=url))
    dispatch = open_dispatch(config)
    network = Network(dispatch.config, dispatch.celery, dispatch.registry)
    made = Server(config, Store(url), network)
    yield made
    close_dispatch(dispatch)
    made.store.close()


def test_nothing_counts_twice_and_everything_ends(server: Server) -> None:
    share = 0.25 if server.store.engine.dialect.name == "sqlite" else 0.03
    chosen = settings(
        max_examples=int(settings().max_examples * share),
        stateful_step_count=STEPS,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    world = type("World", (Uniqueness,), {"server": server, "assignment": add_assignment(server.store)})
    run_state_machine_as_test(world, settings=chosen)
