"""Second opinions: planned, sent to idle machines of another family, compared, and in nobody's way."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from sqlalchemy import select, update

from grading.broker import celery_app
from grading.broker.heartbeats import Heartbeat, Lease
from grading.broker.signing import signer
from grading.domain.jobs import Job, Result, read_job
from grading.domain.messages import verbatim
from grading.domain.permissions import Actor
from grading.domain.second_opinions import SecondOpinionPolicy, Which
from grading.domain.stages import SECOND_OPINION
from grading.store import schema
from grading.store.database import now
from grading.store.privacy.deletion import delete_submissions
from grading.store.tables import Assignment, Grade, Round, RoundStage, Run, SecondOpinion
from grading.store.trust import second_opinions, stage_drains
from grading.store.views import grade_history
from grading.store.views.submission import load_view
from tests.support.aging import Fresh, Played, played
from tests.support.factories import add_assignment, result, submit
from workers.server import record
from workers.server.inbox import receive
from workers.server.second_opinions import admit_opinions

MACHINES = """
[sandbox]
backend = "none"

[[machines]]
name = "one"
slots = 4
[machines.stages]
analysis = { engine = "instant", model = "qwen3:30b" }
second_opinion = { engine = "instant", model = "qwen3:30b" }

[[machines]]
name = "two"
slots = 4
[machines.stages]
feedback = { engine = "instant", model = "gemma3:27b" }
second_opinion = { engine = "instant", model = "gemma3:27b" }
"""
MODELS = {"one": "qwen3:30b", "two": "gemma3:27b"}
FIRST = {"analysis": "one", "feedback": "two"}


class Cluster:
    """A server side, and two machines of two families that answer as they are told."""

    def __init__(self, system: Played) -> None:
        self.system, self.store = system, system.store
        self.levels: dict[str, int] = {}
        """Criterion -> level of a second opinion; else as the first one."""

    def heartbeat(self, *names: str, busy: int = 0) -> None:
        for name in names or MODELS:
            machine = self.system.server.config.machine(name)
            stages = {stage: {"engine": "instant", "model": MODELS[name]} for stage in machine.stages}
            beat = Heartbeat(name, name, 4, busy, stages)
            self.system.server.dispatch.registry.heartbeat(beat)

    def take(self, *queues: str) -> list[Job]:
        """The jobs that wait in these queues, taken out."""
        redis: Any = self.system.server.dispatch.registry.redis
        found = []
        for name in queues:
            while row := redis.rpop(name):
                _, kwargs, _ = json.loads(base64.b64decode(json.loads(row)["body"]))
                found += [read_job(kwargs["job"])] if "job" in kwargs else []  # not a canary
        return found

    def answer(self, job: Job, machine: str, **other: Any) -> Result:
        judged = [
            {"criterion": one.id, "level": self.levels.get(one.id, 2), "reason": "As I see it."}
            for one in job.rubric.of_stage(job.stage)
        ]
        if job.stage != SECOND_OPINION:
            made = result(job.run_id, job.round_id, job.stage)
        else:
            output = {"judgements": judged}
            made = result(job.run_id, job.round_id, job.stage, **{"output": output, **other})
        how = made.provenance.model_copy(
            update={"machine": machine, "model": MODELS[machine], "uses_model": True}
        )
        return made.model_copy(update={"provenance": how})

    def record(self, job: Job, machine: str, **other: Any) -> str:
        (recorded,) = record.record(self.system.server, [self.answer(job, machine, **other)])
        return recorded.outcome

    def grade(self, *students: str, which: Which = "all", release: str = "after_review") -> list[str]:
        """Graded submissions of an assignment with this policy; their round ids."""
        assignment_id = add_assignment(self.store, release=release)
        self.policy(assignment_id, which)
        rounds = [submit(self.store, assignment_id, one).round_id for one in students or ("s-1",)]
        self.system.pass_time()
        self.heartbeat()
        self.system.sweeper.step()
        self.finish_grading()
        return rounds

    def finish_grading(self) -> None:
        for stage, machine in FIRST.items():
            for job in self.take(stage):
                assert self.record(job, machine) == "accepted"

    def policy(self, assignment_id: int, which: Which) -> None:
        with self.store.write() as session:
            assignment = session.get_one(Assignment, assignment_id)
            actor = Actor(user_id=1)
            second_opinions.set_policy(session, assignment, SecondOpinionPolicy(which=which), actor)

    def asked(self) -> dict[str, list[Job]]:
        """The second opinions that are asked for now, by machine."""
        self.system.pass_time()
        self.heartbeat()
        admit_opinions(self.system.server)
        return {name: self.take(celery_app.own_queue(name)) for name in MODELS}

    def states(self) -> Mapping[str, str]:
        with self.store.read() as session:
            return {row.stage: row.state for row in session.scalars(select(SecondOpinion))}

    def held(self, round_id: str) -> bool:
        with self.store.read() as session:
            return session.scalars(select(Grade.held).where(Grade.round_id == round_id)).one()


@pytest.fixture
def cluster(fresh_database: Fresh, redis_url: str, tmp_path: Path) -> Iterator[Cluster]:
    (tmp_path / "config.toml").write_text(MACHINES, encoding="utf-8")
    with played(fresh_database(schema.upgrade), redis_url, tmp_path) as made:
        yield Cluster(made)


def test_each_stage_is_judged_by_another_family_in_another_order(cluster: Cluster) -> None:
    (round_id,) = cluster.grade()
    asked = cluster.asked()
    assert {name: [job.stage for job in jobs] for name, jobs in asked.items()} == {
        "one": [SECOND_OPINION], "two": [SECOND_OPINION],
    }  # fmt: skip
    (by_gemma,), (by_qwen,) = asked["two"], asked["one"]
    assert [one.id for one in by_gemma.rubric.of_stage(SECOND_OPINION)] == ["code"]
    assert [one.id for one in by_qwen.rubric.of_stage(SECOND_OPINION)] == ["reflection"]
    assert cluster.states() == {"analysis": "running", "feedback": "running"}
    assert cluster.record(by_gemma, "two") == "accepted"
    assert cluster.record(by_qwen, "one") == "accepted"
    assert cluster.states() == {"analysis": "done", "feedback": "done"}
    with cluster.store.read() as session:
        found = second_opinions.load_opinions(session, round_id)
        grade = session.scalars(select(Grade)).one()
        assert len(session.scalars(select(Round).where(Round.current)).all()) == 1
        submission = session.get_one(Round, round_id).submission_id
        assert [one.number for one in grade_history.list_gradings(session, submission)] == [1]
        assert not load_view(session, submission).regraded
    assert {name: (model, one.first, one.second, one.apart) for name, (model, one) in found.items()} == {
        "code": ("gemma3:27b", 2, 2, True),  # the checks give 4
        "reflection": ("qwen3:30b", 2, 2, False),
    }
    assert grade.points is not None
    assert cluster.asked() == {"one": [], "two": []}


def test_what_others_decided_or_replaced_meanwhile_is_left_alone(cluster: Cluster) -> None:
    cluster.grade()
    both = Barrier(2)

    def family_of(_model: str) -> str:
        if cluster.store.engine.dialect.name == "postgresql":  # elsewhere one writes at a time
            both.wait(30)
        return "qwen"

    def plan(_number: int) -> int:
        with cluster.store.write() as session:
            return second_opinions.plan_opinions(session, family_of, 10)

    with ThreadPoolExecutor(2) as pool:
        assert max(pool.map(plan, range(2))) == 1
    assert cluster.states() == {"analysis": "wanted", "feedback": "wanted"}
    with cluster.store.write() as session:
        due = second_opinions.list_due(session, "gemma", 10)
        session.execute(update(Round).values(current=False))
        assert [second_opinions.begin_round(session, one) for one in due] == [None, None]
        session.rollback()


def test_nothing_is_sent_while_grading_waits_or_is_in_hand(cluster: Cluster) -> None:
    cluster.grade()
    with cluster.store.read() as session:
        assignment_id = session.scalars(select(Assignment.id)).one()
    submit(cluster.store, assignment_id, "s-2")
    cluster.system.pass_time()
    cluster.heartbeat()
    cluster.system.sweeper.step()
    assert cluster.asked() == {"one": [], "two": []}  # its runs wait in the queues
    (analysis,) = cluster.take("analysis")
    (feedback,) = cluster.take("feedback")
    leases = cluster.system.server.dispatch.registry
    lease = Lease(analysis.run_id, "one", "one", "analysis", round_id=analysis.round_id)
    leases.claim(lease, analysis.round_id)
    asked = cluster.asked()
    assert asked["one"] == []
    assert [job.stage for job in asked["two"]] == [SECOND_OPINION]
    for job, machine in ((analysis, "one"), (feedback, "two")):
        assert cluster.record(job, machine) == "accepted"


def test_levels_apart_hold_what_is_not_released(cluster: Cluster) -> None:
    (round_id,) = cluster.grade()
    cluster.levels = {"reflection": 4, "code": 4}
    with cluster.store.write() as session:
        grade = session.scalars(select(Grade)).one()
        report, grade.held = grade.report, False
    asked = cluster.asked()
    assert cluster.record(asked["one"][0], "one") == "accepted"
    assert cluster.held(round_id)
    with cluster.store.read() as session:
        grade = session.scalars(select(Grade)).one()
        assert (grade.report, grade.released_at) == (report, None)
        assert second_opinions.count_differing(session, 1, released=False) == 1
        (_, opinion) = second_opinions.load_opinions(session, round_id)["reflection"]
    assert (opinion.first, opinion.second, opinion.reason, opinion.apart) == (2, 4, "As I see it.", True)


def test_of_what_is_released_staff_are_told(cluster: Cluster) -> None:
    cluster.grade()
    with cluster.store.write() as session:
        grade = session.scalars(select(Grade)).one()
        grade.held, grade.released_at = False, now(session)
    cluster.levels = {"reflection": 4}
    cluster.record(cluster.asked()["one"][0], "one")
    with cluster.store.read() as session:
        grade = session.scalars(select(Grade)).one()
        assert (grade.held, grade.released_at is None) == (False, False)
        assert second_opinions.count_differing(session, 1, released=True) == 1


def test_what_a_person_reviewed_is_not_held(cluster: Cluster) -> None:
    (round_id,) = cluster.grade()
    with cluster.store.write() as session:
        grade = session.scalars(select(Grade)).one()
        grade.held, grade.reviewed_at = False, now(session)
    cluster.levels = {"reflection": 4}
    cluster.record(cluster.asked()["one"][0], "one")
    assert not cluster.held(round_id)
    with cluster.store.read() as session:
        assert second_opinions.count_differing(session, 1, released=False) == 0


def test_without_another_family_nothing_waits_for_it(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    (round_id,) = cluster.grade()
    monkeypatch.setitem(MODELS, "two", "qwen2.5-coder:7b")
    asked = cluster.asked()
    with monkeypatch.context() as patched:
        patched.setattr(cluster.store, "write", None)  # where nothing is to do, no sweep writes
        assert not any(cluster.asked().values())
    assert sum(len(jobs) for jobs in asked.values()) == 1  # what gemma judged
    assert cluster.states()["analysis"] == "wanted"
    with cluster.store.read() as session:
        assert session.get_one(Round, round_id).state == "graded"


def test_a_lost_one_is_sent_again_and_its_late_answer_is_a_duplicate(cluster: Cluster) -> None:
    cluster.grade()
    (lost,) = cluster.asked()["one"]
    for _ in range(3):  # it is in no queue, and nobody has it
        cluster.system.pass_time(10)
        cluster.heartbeat()
        cluster.system.sweeper.step()
    (again,) = [*cluster.take(celery_app.own_queue("one")), *cluster.asked()["one"]]
    assert (again.round_id, again.attempt) == (lost.round_id, 2)
    assert cluster.record(again, "one") == "accepted"
    assert cluster.record(lost, "one") == "duplicate"
    assert cluster.states()["feedback"] == "done"


def test_what_a_machine_gives_back_waits_and_costs_no_try(cluster: Cluster) -> None:
    cluster.grade()
    (given,) = cluster.asked()["one"]
    sent = signer(cluster.system.server.config.redis.url, "one").sign(
        "return", {"run_id": given.run_id, "to": ""}, given.secret
    )
    receive(cluster.system.server, [("one", sent)])
    with cluster.store.read() as session:
        stage = session.get_one(RoundStage, (given.round_id, SECOND_OPINION))
        assert (stage.state, stage.tries) == ("failed", 0)
        assert session.get_one(Run, given.run_id).error == "gave_way"  # nobody counts it as a loss
    (again,) = cluster.asked()["one"]
    assert (again.round_id, again.attempt) == (given.round_id, 2)


def test_who_was_taken_out_of_a_stage_gives_no_opinion_on_it_with_that_model(cluster: Cluster) -> None:
    cluster.grade()

    def asked(model: str) -> list[Job]:
        stages = {"analysis": model, SECOND_OPINION: MODELS["two"]}
        places = {stage: {"engine": "instant", "model": name} for stage, name in stages.items()}
        cluster.system.pass_time()
        cluster.system.server.dispatch.registry.heartbeat(Heartbeat("two", "two", 4, 0, places))
        admit_opinions(cluster.system.server)
        return cluster.take(celery_app.own_queue("two"))

    with cluster.store.write() as session:
        stage_drains.drain_stage(session, "two", "analysis", "cli", verbatim("It grades otherwise."))
    assert asked(MODELS["two"]) == []
    (job,) = asked("qwen3:30b")
    assert cluster.record(job, "two", output={"judgements": "none"}) == "failed"
    assert asked(MODELS["two"]) == []  # the next try, too
    with cluster.store.write() as session:
        assert stage_drains.undrain_stage(session, "two", "analysis", "cli")
    assert [one.attempt for one in asked(MODELS["two"])] == [2]


def test_answers_of_another_shape_are_tried_again_and_end(cluster: Cluster) -> None:
    (round_id,) = cluster.grade()
    for attempt in (1, 2, 3):
        (job,) = cluster.asked()["one"]
        assert job.attempt == attempt
        assert cluster.record(job, "one", output={"judgements": "none"}) == "failed"
    assert cluster.asked()["one"] == []
    assert cluster.states()["feedback"] == "dead"
    with cluster.store.read() as session:
        assert session.get_one(Round, round_id).state == "graded"
        assert session.get_one(Round, job.round_id).state == "failed"
    cluster.policy(1, "all")  # the same: what failed is planned again
    (again,) = cluster.asked()["one"]
    assert (again.round_id != job.round_id, again.attempt) == (True, 1)


def test_an_opinion_on_a_round_that_counts_no_more_holds_nothing(cluster: Cluster) -> None:
    (round_id,) = cluster.grade()
    (job,) = cluster.asked()["one"]
    with cluster.store.write() as session:
        old, grade = session.get_one(Round, round_id), session.scalars(select(Grade)).one()
        grade.held, old.current = False, False
    cluster.levels = {"reflection": 4}
    assert cluster.record(job, "one") == "accepted"
    assert not cluster.held(round_id)
    with cluster.store.read() as session:
        assert second_opinions.count_states(session, 1) == {}


def test_another_policy_decides_what_was_not_sent(cluster: Cluster) -> None:
    cluster.grade(which="near")
    assert cluster.asked()["one"]  # the checks and the model disagree
    cluster.policy(1, "none")
    with cluster.store.read() as session:
        assert {row.state for row in session.scalars(select(SecondOpinion))} == {"running"}


def test_second_opinions_are_deleted_with_their_submission(cluster: Cluster) -> None:
    cluster.grade()
    cluster.record(cluster.asked()["one"][0], "one")
    with cluster.store.write() as session:
        ids = [one.submission_id for one in session.scalars(select(SecondOpinion))]
        counts = delete_submissions(session, ids)
        assert counts["second_opinions"] == 2
        assert session.scalars(select(Run)).all() == []
