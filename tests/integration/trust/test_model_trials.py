"""A model on trial: a sample of marked submissions, its levels beside people's, the page and the decision."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

import pytest
from sqlalchemy import null, select, update

from app.trust.model_trials import machines_to_change
from grading.domain.jobs import Judgement, Provenance
from grading.domain.messages import verbatim
from grading.domain.permissions import Actor
from grading.domain.shadow_runs import ShadowOutcome
from grading.domain.stages import AnalysisOutput
from grading.statistics.parity import repeats
from grading.store import tables
from grading.store.database import now
from grading.store.tables import Audit, ModelTrial, Round, ShadowRun
from grading.store.trust import model_trials, parity, shadow_runs, stage_drains
from grading.store.trust.model_trials import Wanted
from tests.integration.grades.classroom import a_report, mark, student
from tests.integration.webapp import School, form_token

RULES = "rules\trules\t"


@pytest.fixture
def school(school_url: str) -> Iterator[School]:
    made = School(school_url)
    yield made
    made.close()


def marked_class(school: School, size: int = 24, *, blind: bool = True) -> list[str]:
    """People and the model of now differ by one level now and then; documents are still there."""
    how = Provenance(machine="m", engine="ollama", model="now")
    made = []
    for n in range(size):
        student(school, f"s{n}")
        submission, level = school.submit(f"s{n}"), n % 5
        now = max(0, level - (n % 2))
        output = AnalysisOutput(judgements=(Judgement(criterion="load", level=now),))
        school.grade(submission, a_report(now, 3, analysis=output, stages={"analysis": how}), released=True)
        mark(school, submission, "load", level, blind=blind)
        made.append(submission)
    with school.store.write() as session:
        session.execute(update(Round).values(prepared={"documents": [], "hidden_evidence": {}}))
    return made


def answer(school: School, **other: object) -> int:
    """An idle machine does all that waits: it grades as people did. How many."""
    with school.store.write() as session:
        runs = shadow_runs.next_for(session, "m1", {"analysis": ("rules", "rules")}, 100)
        shadow_runs.mark_sent(session, runs, "m1", "q", 60)
        marked = model_trials.list_marked(session, school.assignment, "analysis")
        people = {one.submission_id: round(one.levels["load"][0]) for one in marked}
        outcomes = {
            run.id: ShadowOutcome.model_validate(
                {"ok": True, "levels": {"load": people.get(run.submission_id, 2)}, "seconds": 2.0, **other}
            )
            for run in runs
        }
        return shadow_runs.record(session, "q", outcomes)


def test_a_model_is_tried_beside_people(school: School, monkeypatch: pytest.MonkeyPatch) -> None:
    marked_class(school)
    teacher, grader = school.client("teacher"), school.client("grader")
    trust = f"/assignments/{school.assignment}/trust"
    others = ("", "/confidence", "/second-opinions", "/questions", "/stress-test", "/machines")
    assert {one: teacher.get(f"{trust}{one}").status_code for one in others} == dict.fromkeys(others, 200)
    url = f"{trust}/models"
    form = {"csrf_token": form_token(teacher, url), "stage": "analysis", "model": RULES, "size": "20"}
    assert "rules (rules): dgx-spark-1" in teacher.get(url).text
    assert teacher.post(url, data={**form, "model": "x"}, follow_redirects=True).text.count("Choose a stage")
    started = teacher.post(url, data=form)
    assert started.status_code == 303
    page = started.headers["Location"]
    assert "0 of 20 submissions graded" in teacher.get(page).text

    assert answer(school, confidence={"load": 80}, flags=("shortened",)) == 20
    shown = grader.get(page).text
    with monkeypatch.context() as once:
        once.delattr(model_trials, "load_found")  # intervals take seconds
        assert teacher.get(page).status_code == 200
    assert "It agrees better with people than the model in use." in shown
    assert "20 of 20 submissions graded" in shown
    assert "How far do people agree with each other?" in shown
    assert "The proof for releasing unread ends:" in shown
    assert "Switch to this model" not in shown  # for instructors

    decision = {"csrf_token": form_token(teacher, page), "decision": "switched"}
    after = teacher.post(page, data=decision, follow_redirects=True).text
    assert "Decided to switch." in after
    assert "was decided already" in teacher.post(page, data=decision, follow_redirects=True).text
    with school.store.read() as session:
        trial = session.scalars(select(ModelTrial)).one()
        trial.model = "another"
        assert machines_to_change(school.services.config.machines, trial) == ["dgx-spark-1"]
        session.rollback()
        actions = session.scalars(select(Audit.action).where(Audit.action.like("model_trial%"))).all()
    assert sorted(actions) == ["model_trial.decide", "model_trial.start"]


def test_levels_that_people_gave_knowing_those_of_the_model_prefer_none(school: School) -> None:
    works = marked_class(school, 14, blind=False)
    actor = Actor(school.users["teacher"], administrator=True)
    with school.store.write() as session:
        wanted = Wanted("analysis", "rules", "rules")
        trial = model_trials.start_trial(session, school.assignment, wanted, actor)
        for work, error in zip(works[12:], ("model_missing", "not_here"), strict=True):
            shadow_runs.give_up(session, session.query(ShadowRun).filter_by(submission_id=work), error)
    assert answer(school) == 12
    page = f"/model-trials/{trial}"
    shown = school.client("teacher").get(page).text
    assert "had seen those of the model in use" in shown
    assert "2 submissions could not be graded:" in shown
    assert "The model is not installed on the machine. The machine does not have this model" in shown
    assert shown.index('value="refused"') < shown.index('id="switch-title"')
    for work in works[:8]:
        mark(school, work, "load", 2, "teacher")
    with school.store.write() as session:
        made = tables.MarkImport(
            assignment_id=school.assignment, sha256="0", name="old.csv", marks=2, at=now(session)
        )
        session.add(made)
        session.flush()
        for work in works[8:10]:
            session.add(
                tables.HumanMark(
                    assignment_id=school.assignment, import_id=made.id, work=work, submission_id=work,
                    marker="AB", criterion="load", level=2,
                )
            )  # fmt: skip
    with school.store.read() as session:
        found = model_trials.load_found(session, session.get_one(ModelTrial, trial))
    assert (found.blind, found.whole.submissions, found.whole.n) == (True, 10, 10)
    assert "had seen those of the model in use" not in school.client("teacher").get(page).text


def test_samples_are_spread_over_levels_and_what_waits_ends_with_the_trial(school: School) -> None:
    marked_class(school, 20)
    actor = Actor(school.users["teacher"], administrator=True)
    with school.store.write() as session:
        wanted = Wanted("analysis", "rules", "rules", size=5)
        trial = model_trials.start_trial(session, school.assignment, wanted, actor)
    with school.store.read() as session:
        chosen = set(session.scalars(select(ShadowRun.submission_id)))
        marked = model_trials.list_marked(session, school.assignment, "analysis")
        assert len(shadow_runs.next_for(session, "m1", {"analysis": ("rules", "rules")}, 100)) == 5
    assert sorted(one.share for one in marked if one.submission_id in chosen) == [0, 1, 2, 3, 4]
    with school.store.write() as session:
        stage_drains.drain_stage(session, "m1", "analysis", "cli", verbatim("It grades otherwise."))
        assert shadow_runs.next_for(session, "m1", {"analysis": ("rules", "rules")}, 100) == []
        others = {"analysis": ("mlx", "m"), "feedback": ("rules", "rules")}
        assert len(shadow_runs.next_for(session, "m1", others, 100)) == 5
        model_trials.decide(session, trial, "refused", actor)
        assert shadow_runs.count_states(session) == {}
        assert session.get_one(ModelTrial, trial).decision == "refused"
        again = model_trials.start_trial(session, school.assignment, wanted, actor)
        shadow_runs.give_up(session, session.query(ShadowRun).filter_by(trial_id=again), "no_answer")
    shown = school.client("teacher").get(f"/model-trials/{again}").text
    assert "The machine did not answer." in shown
    assert "Ask an administrator to look at the machine" in shown


def test_golden_submissions_are_proposed_chosen_and_shown(school: School) -> None:
    marked_class(school, 24)
    teacher, url = school.client("teacher"), f"/assignments/{school.assignment}/trust/machines"
    shown = teacher.get(url).text
    assert "Nothing is compared yet." in shown
    assert shown.count(" checked") == parity.GOLDEN
    with school.store.read() as session:
        proposed = parity.propose(parity.list_candidates(session, school.assignment))
    form = {"csrf_token": form_token(teacher, url)}
    few = teacher.post(url, data={**form, "submission": proposed[:2]}, follow_redirects=True).text
    assert "Choose at least 5" in few
    assert "10 golden submissions." in teacher.post(
        url, data={**form, "submission": proposed}, follow_redirects=True
    ).text  # fmt: skip
    with school.store.write() as session:
        night, machines = date(2026, 11, 27), {"m1": ["analysis"], "m2": ["feedback"]}
        # a night without any run would be due for ever
        assert parity.assignments_due(session, night, {"m1": ["another"]}) == []
        assert parity.assignments_due(session, night, machines) == [school.assignment]
        count = parity.plan_night(session, school.assignment, night, machines)
        assert count == 2 * 10 * repeats(1)
        assert parity.assignments_due(session, night, machines) == []
    waits = teacher.get(url).text
    assert "waits for idle machines" in waits
    assert "27 Nov 2026" in waits
    while answer(school):
        pass
    with school.store.write() as session:
        (judged,) = parity.judge(session)
        assert (judged.machines, judged.findings) == (("m1",), ())
        assert parity.settle(session, judged, lambda _stage: {"m1"}) == []
    assert "As far as 10 golden submissions show" in teacher.get(url).text
    with school.store.write() as session:
        kept = select(Round.id).where(Round.submission_id.in_(proposed[:4]))
        session.execute(update(Round).where(Round.id.not_in(kept)).values(prepared=null()))
        assert parity.assignments_due(session, date(2026, 11, 28), machines) == []
    assert "Only 4 golden submissions can still be graded" in teacher.get(url).text
    with school.store.write() as session:
        session.execute(update(Round).values(prepared=null()))
    assert "End the comparison" in teacher.get(url).text
    teacher.post(url, data=form)
    with school.store.read() as session:
        assert parity.golden_ids(session, school.assignment) == []
