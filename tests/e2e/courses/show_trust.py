"""A class with something to see on each page of trust: for pictures, and for a walk through the pages."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import insert, select, update
from sqlalchemy.orm import Session

from app.trust.stress_tests import MUST_FALL, row_titles
from grading.domain.jobs import Quote
from grading.domain.permissions import Actor
from grading.domain.report import Report
from grading.domain.second_opinions import CriterionOpinion, SecondOpinionPolicy
from grading.domain.shadow_runs import ShadowOutcome
from grading.statistics.parity import repeats
from grading.store import tables
from grading.store.database import now
from grading.store.review import second_marking
from grading.store.trust import model_trials, parity, release_samples, second_opinions
from grading.store.trust.model_trials import Wanted as WantedTrial
from grading.store.trust.release_samples import Wanted
from tests.integration.trust.planted_gap import RUBRIC, deserved, plant
from tests.integration.webapp import School

MACHINES = ("dgx-spark-1", "dgx-spark-2", "mac-studio-1")
STAGE_OF = {one.id: one.stage for one in RUBRIC.criteria}
MOVED = {"keywords.rubric": ("think", 1.5), "length.prose": ("think", 0.7), "outputs.claims": ("plot", 2.0)}
"""Kinds of variants that gain points with nobody noticing, by criterion."""
HELD = {"praise.prose": ("think", 1.0), "instructions.comments.1": ("join", 2.0)}
"""Those whose grades are held."""


@dataclass(frozen=True)
class Work:
    """A submission with its grade, and what a person would give it."""

    submission_id: str
    round_id: str
    report: Report
    levels: dict[str, int]


@dataclass(frozen=True)
class TrustClass:
    """A graded class whose work a person and other models look at."""

    school: School
    assignment: int
    works: tuple[Work, ...]
    teacher: Actor


def plant_class(school: School, count: int, seed: int = 1) -> TrustClass:
    """A graded class; nothing else has happened."""
    assignment = plant(school, count, seed)
    with school.store.write() as session:
        of_it = select(tables.Submission.id).where(tables.Submission.assignment_id == assignment)
        session.execute(
            update(tables.Round)
            .where(tables.Round.submission_id.in_(of_it))
            .values(prepared={"documents": [], "hidden_evidence": {}}, finished_at=now(session))
        )
        query = (
            select(tables.Submission, tables.Grade)
            .join(tables.Grade, tables.Grade.submission_id == tables.Submission.id)
            .where(tables.Submission.assignment_id == assignment)
            .order_by(tables.Submission.created_at, tables.Submission.id)
        )
        works = tuple(
            Work(
                submission.id,
                grade.round_id,
                Report.model_validate(grade.report),
                deserved(submission.documents[0]["cells"][0]["source"]),
            )
            for submission, grade in session.execute(query)
        )
    teacher = Actor(school.users["teacher"], roles={school.course: "instructor"})
    return TrustClass(school, assignment, works, teacher)


def plant_trust(school: School, count: int = 120) -> int:
    """A class in a state of each page of trust; its assignment."""
    made = plant_class(school, count)
    release_some(made, 12)
    mark_sample(made, count)
    give_opinions(made, count // 3)
    try_model(made)
    compare_machines(made)
    with school.store.write() as session:
        add_stress_test(session, school, made.assignment, [one.submission_id for one in made.works[:4]])
    return made.assignment


def release_some(made: TrustClass, count: int) -> None:
    """Some of the held grades are reviewed and released: golden ones can be chosen of them."""
    with made.school.store.write() as session:
        chosen = [one.submission_id for one in made.works if one.report.held][-count:]
        moment = {"reviewed_at": now(session), "released_at": now(session), "held": False}
        of_these = tables.Grade.submission_id.in_(chosen)
        session.execute(update(tables.Grade).where(of_these).values(**moment))


def mark_sample(made: TrustClass, count: int, wanted: Wanted | None = None) -> None:
    """A random sample is drawn and marked as the work deserves."""
    levels = {one.submission_id: one.levels for one in made.works}
    with made.school.store.write() as session:
        assignment = session.get_one(tables.Assignment, made.assignment)
        release_samples.draw(session, assignment, wanted or Wanted(share=0.1), count, made.teacher)
        sample = release_samples.find_open(session, made.assignment)
        assert sample is not None
        criteria = {one.id: one for one in release_samples.rubric_of(session, sample).criteria}
        for key, name in release_samples.load_sample(session, sample).levels:
            second_marking.save_mark(session, key, criteria[name], float(levels[key][name]), made.teacher)


def give_opinions(made: TrustClass, count: int) -> None:
    """A second model rates so many; it sees what the first one overlooked. Some wait."""
    chance = random.Random(5)
    with made.school.store.write() as session:
        assignment = session.get_one(tables.Assignment, made.assignment)
        second_opinions.set_policy(session, assignment, SecondOpinionPolicy(which="all"), made.teacher)
        moment = now(session)
        for number, work in enumerate(made.works[: count + 5]):
            for stage in ("analysis", "feedback"):
                about = {
                    "round_id": work.round_id, "stage": stage, "submission_id": work.submission_id,
                    "assignment_id": made.assignment, "family": "qwen", "created_at": moment,
                }  # fmt: skip
                if number >= count:
                    session.add(tables.SecondOpinion(**about, state="wanted"))
                    continue
                given = [_opinion(work, one, chance) for one, at in STAGE_OF.items() if at == stage]
                session.add(
                    tables.SecondOpinion(
                        **about, state="done", model="mistral-small3", apart=sum(one.apart for one in given),
                        opinions=[one.model_dump(mode="json") for one in given],
                    )
                )  # fmt: skip


def _opinion(work: Work, criterion: str, chance: random.Random) -> CriterionOpinion:
    (first,) = (one for one in work.report.criteria if one.criterion == criterion)
    second = min(4, max(0, work.levels[criterion] + chance.choice((-1, 0, 0, 0))))
    level = round(first.level or 0)
    return CriterionOpinion(
        criterion=criterion, title=first.title, highest=4, first=level, second=second,
        reason="The work shows this.", quotes=(Quote(text="both"),), apart=abs(level - second) > 1,
    )  # fmt: skip


def try_model(made: TrustClass) -> None:
    """Another model is tried: it agrees with people a little better than the one in use."""
    levels = {one.submission_id: one.levels for one in made.works}
    chance = random.Random(2)
    with made.school.store.write() as session:
        wanted = WantedTrial("feedback", "ollama", "gemma3:27b")
        trial = model_trials.start_trial(session, made.assignment, wanted, made.teacher)
        for run in session.scalars(select(tables.ShadowRun).where(tables.ShadowRun.trial_id == trial)):
            given = {
                name: max(0, level - (chance.random() < 0.1))
                for name, level in levels[run.submission_id].items()
                if STAGE_OF[name] == "feedback"
            }
            done = ShadowOutcome(ok=True, levels=given, confidence=dict.fromkeys(given, 90), seconds=21.0)
            run.state, run.outcome = "done", done.model_dump(mode="json")


def compare_machines(made: TrustClass, alarm: str = "") -> None:
    """Machines graded ten golden submissions in two nights, one of them otherwise if it is named."""
    with made.school.store.write() as session:
        chosen = parity.propose(parity.list_candidates(session, made.assignment))
        parity.choose_golden(session, made.assignment, chosen, made.teacher)
        tonight = parity.night_of(now(session))
        rounds = {one.submission_id: one.round_id for one in made.works}
        rows = [
            {
                "id": tables.new_id(), "night": tonight - timedelta(days=back),
                "assignment_id": made.assignment,
                "submission_id": key, "round_id": rounds[key], "stage": "analysis", "repeat": repeat,
                "machine": machine, "state": "done", "judged": True,
                "outcome": ShadowOutcome(ok=True).model_dump(mode="json"),
            }
            for back in (0, 1)
            for machine in MACHINES
            for key in chosen
            for repeat in range(repeats(list(STAGE_OF.values()).count("analysis")))
        ]  # fmt: skip
        session.execute(insert(tables.ShadowRun), rows)
        if alarm:
            why = parity.LEVELS(count=3, whom=parity.BEFORE(), levels="0.5")
            session.add(
                tables.ParityAlarm(
                    night=tonight, assignment_id=made.assignment, machine=alarm, stage="analysis",
                    why=[why.model_dump(mode="json")], out=True, at=now(session),
                )
            )  # fmt: skip


def add_stress_test(session: Session, school: School, assignment: int, sources: Sequence[str]) -> None:
    """A stress test that has ended: some variants move grades, some are held."""
    version = session.query(tables.RubricVersion).filter_by(assignment_id=assignment).first()
    assert version is not None
    moment = now(session)
    test = tables.StressTest(
        id=tables.new_id(), assignment_id=assignment, rubric_version_id=version.id, seed=1,
        by=school.users["teacher"], created_at=moment, finished_at=moment,
    )  # fmt: skip
    session.add(test)
    session.flush()
    session.add_all(stress_variants(test.id, sources))


def stress_variants(stress_test_id: str, sources: Sequence[str]) -> list[tables.StressVariant]:
    """Graded variants of these submissions, of each kind."""
    plain = {one.id: one.points / 2 for one in RUBRIC.criteria}
    rows = ["unchanged", *row_titles()]
    return [_variant(stress_test_id, source, row, plain) for source in sources for row in rows]


def _variant(stress_test_id: str, source: str, row: str, plain: dict[str, float]) -> tables.StressVariant:
    key = f"{row}.1" if row.startswith("instructions.") or row in MUST_FALL else row
    more = MOVED.get(key) or HELD.get(key)
    points = {**plain, more[0]: plain[more[0]] + more[1]} if more else dict(plain)
    outcome: dict[str, Any] = {"held": key in HELD, "flags": []}
    criterion = ""
    if row in MUST_FALL:
        criterion = "join"
        points[criterion] = 0.0 if row == "removed" else points[criterion] - 1
    outcome |= {"criteria": points, "total": sum(points.values())}
    return tables.StressVariant(
        stress_test_id=stress_test_id, source_id=source, key=key, criterion=criterion, ended=True,
        family=_family(row), expects="lower" if row in MUST_FALL else "not higher", outcome=outcome,
    )  # fmt: skip


def _family(row: str) -> str:
    return row if row in (*MUST_FALL, "unchanged", "recombined", "names") else row.partition(".")[0]
