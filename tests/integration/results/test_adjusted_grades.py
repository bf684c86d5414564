"""Deductions, caps and bonus where people and programs meet them: pages, print, API, tables."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from app.experiments.dry_runs import _adjusted
from app.results import pdf_data as printing
from app.results import views as results
from grading.checks.kinds.code import Uses
from grading.documents import Identity
from grading.domain.evidence import AdjustmentEvidence, CheckOutcome, Evidence
from grading.domain.rubric import Adjustment, Criterion, Rubric
from grading.execution.plan import Plan
from grading.integrations.canvas.values import words
from grading.scoring import combine
from grading.scoring.adjustments import added_up
from grading.scoring.plain_text_report import as_text
from grading.store import tables
from grading.store.assignments import versions
from grading.store.assignments.versions import NewVersion
from grading.store.experiments import impact
from grading.store.grades import final_score
from grading.store.integrations.lti import scores
from grading.store.review import carry_over
from grading.store.views import api_lists
from grading.store.views import submission as submission_view
from tests.integration.gradebook.test_pages import make, points, upload
from tests.integration.review.test_pages import audited, change, post, stamp
from tests.integration.webapp import School, report
from tests.unit.checks.samples import script
from workers.server.prepare import ReceivedSubmission, make_ready
from workers.server.rubric_cache import Versions

RUBRIC = Rubric(
    criteria=(
        Criterion(id="load", title="Loads the data", points=4),
        Criterion(id="think", title="Thinks about it", points=6, stage="feedback"),
        Criterion(id="plot", title="A moving plot", points=3, bonus=True),
    ),
    adjustments=(
        Adjustment(
            id="pipes", title="No pipe", description="The course asks for it.", deduct=0.2,
            unless=(Uses(all_of=("%>%",), label="uses the pipe"),),
        ),
        Adjustment(id="late", title="Template only", cap=0.5, unless=(Uses(all_of=("print",)),)),
    ),
    bonus_at_most=1.0,
)  # fmt: skip


@pytest.fixture
def school(tmp_path: Path) -> Iterator[School]:
    made = School(tmp_path)
    with made.store.write() as session:
        versions.import_version(
            session,
            "ba",
            NewVersion("hw1", "Homework hw1", "python", "after_review", "with-deductions", RUBRIC),
        )
    yield made
    made.close()


def graded(school: School, who: str = "anna", pipe: float | None = 0.0, plot: int = 4, **how: Any) -> str:
    """A submission of 8.5 of 10 points and 3 of bonus, with a deduction of 2 where `pipe` is 0."""
    submission = school.submit(who)
    outcomes = {"pipes": pipe, "late": 1.0}
    found = tuple(
        AdjustmentEvidence(adjustment=name, outcomes=(_outcome(name, share),))
        for name, share in outcomes.items()
    )
    plain = report()
    made = combine(RUBRIC, Evidence(added_lines=3, adjustments=found), {}, {})
    levels = {"load": 4, "think": 3, "plot": plot}
    grades = tuple(
        one.model_copy(
            update={"points": one.max_points * levels[one.criterion] / 4, "level": levels[one.criterion]}
        )
        for one in made.criteria
    )
    adjusted, total = added_up(grades, made.adjustments, RUBRIC.bonus_at_most)
    whole = plain.model_copy(
        update={
            "criteria": grades, "adjustments": adjusted, "points": total, "points_so_far": total,
            "bonus_at_most": RUBRIC.bonus_at_most,
        }
    )  # fmt: skip
    school.grade(submission, whole, **how)
    with school.store.write() as session:
        final_score.update_final_score(
            session, session.query(tables.Grade).filter_by(submission_id=submission).one()
        )
    return submission


def _outcome(name: str, share: float | None) -> CheckOutcome:
    weight = 0.0 if share is None else 1.0
    return CheckOutcome(check=name, label=f"check of {name}", earned=share or 0.0, weight=weight, message="m")


def text_of(client: FlaskClient, path: str) -> str:
    page = client.get(path).get_data(as_text=True)
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


def test_a_person_waives_a_deduction_and_takes_that_back(school: School) -> None:
    submission = graded(school)
    assert points(school, submission) == (9.5, 0.0, 9.5)  # 8.5 - 2 + 3
    grader = school.client("grader")
    shown = text_of(grader, f"/submissions/{submission}/review")
    assert "Criteria: 11.5, deductions: 2: 9.5" in shown
    assert "No pipe −2 points Deducts 20 % of all points; applies." in shown
    assert "Template only does not apply" in shown
    form = {"kind": "waive", "target": "pipes"}
    assert change(grader, submission, **form, reason=" ").status_code == 422
    assert change(grader, submission, kind="waive", target="nothing", reason="x").status_code == 422
    done = change(grader, submission, **form, reason="Used |> instead.", back="rv-adjustment-1")
    assert done.headers["Location"].endswith("#rv-adjustment-1")
    assert points(school, submission) == (11.0, 0.0, 11.0)  # at most one above the maximum
    shown = text_of(grader, f"/submissions/{submission}/review")
    assert "waived manually" in shown
    assert "“No pipe” is waived" in shown
    assert "0.5 bonus points exceed the limit: 11" in shown
    assert [(d["kind"], d["from"]) for d in audited(school, "grade.change")] == [("waive", {"points": 2.0})]
    with school.store.read() as session:
        made = session.query(tables.Change).one().id
    undone = post(
        grader, f"/submissions/{submission}/review/undo", change=made, seen=stamp(grader, submission)
    )
    assert undone.status_code == 303
    assert points(school, submission) == (9.5, 0.0, 9.5)


def test_a_person_applies_what_could_not_be_decided(school: School) -> None:
    submission = graded(school, pipe=None)
    assert points(school, submission)[0] == 11.0
    grader = school.client("grader")
    assert "undecided: a check could not run" in text_of(grader, f"/submissions/{submission}/review")
    change(grader, submission, kind="apply", target="pipes", reason="There is none.")
    assert points(school, submission)[0] == 9.5
    assert "applied manually" in text_of(grader, f"/submissions/{submission}/review")


def test_students_read_what_was_taken_in_plain_words_once_it_is_released(school: School) -> None:
    hidden = graded(school)
    assert "No pipe" not in text_of(school.client("anna"), f"/submissions/{hidden}")
    shown = text_of(school.client("ben"), f"/submissions/{graded(school, 'ben', released=True)}")
    assert "9.5 of 10 points" in shown
    assert "No pipe −2 points Deducts 20 % of all points; applies. The course asks for it." in shown
    assert "A moving plot (bonus) 3 of 3" in shown
    assert "Template only" not in shown
    assert "Criteria: 11.5, deductions: 2: 9.5." in shown


def test_the_pdf_canvas_and_the_text_say_the_same(school: School) -> None:
    submission = graded(school)
    with school.app.test_request_context(), school.store.read() as session:
        view = submission_view.load_view(session, submission)
        assert view.grade is not None
        found = view.grade.report
        made, _ = printing.data(results._printed(session, view, found, True))
    (first,) = made["adjustments"]
    assert (first["title"], first["points"]) == ("No pipe", "−2")
    assert made["added_up"] == "Criteria: 11.5, deductions: 2: 9.5"
    assert made["criteria"][2]["title"] == "A moving plot (bonus)"
    pdf = school.client("teacher").get(f"/submissions/{submission}/result.pdf")
    assert (pdf.status_code, pdf.data[:5]) == (200, b"%PDF-")
    for said in (words(found, 9.5, 10, "https://x"), as_text(found, "T", released=True)):
        assert "- No pipe: -2" in said
        assert "bonus" in said


def test_the_api_gives_adjustments_and_takes_their_waiving(school: School) -> None:
    submission = graded(school)
    client, head = school.client(), school.token("grader", "read", "grade")
    url = f"/api/v1/submissions/{submission}"
    answer = client.get(f"{url}/result", headers=head)
    first, second = answer.get_json()["adjustments"]
    assert (first["adjustment"], first["applies"], first["points"], second["applies"]) == (
        "pipes",
        True,
        2.0,
        False,
    )
    assert [one["bonus"] for one in answer.get_json()["criteria"]] == [False, False, True]
    body = {"kind": "waive", "target": "pipes", "reason": "Fine."}
    made = client.post(f"{url}/changes", json=body, headers={**head, "If-Match": answer.headers["ETag"]})
    assert made.status_code == 201
    now = client.get(f"{url}/result", headers=head).get_json()
    assert (now["points"], now["score"], now["max_score"]) == (11.0, 11.0, 10.0)
    first = now["adjustments"][0]
    assert (first["points"], first["original_points"], first["changed"]) == (0.0, 2.0, True)
    assert first["changed_because"] == "Fine."


def test_a_table_shows_deductions_and_what_it_changes_adds_up(school: School) -> None:
    submission = graded(school)
    teacher = school.client("teacher")
    sent = teacher.get(
        f"/courses/{school.course}/grades.csv?assignment={school.assignment}&criteria=1"
    ).get_data(as_text=True)
    (line,) = [one for one in csv.DictReader(io.StringIO(sent)) if one["id"] == "anna"]
    assert (line["points"], line["max"], line["deductions"]) == ("9.5", "10", "-2")
    assert sum(float(line[name]) for name in line if name.endswith("]")) - 2 == 9.5
    client, page, form = upload(school, sent)
    assert "no changes" in page
    client, page, form = upload(school, "id,load\nanna,2\n")
    assert "9.5 → <strong>7.5</strong>" in page
    assert make(school, client, form) == 303
    assert points(school, submission) == (7.5, 0.0, 7.5)


def test_a_waived_deduction_stays_waived_in_another_grading(school: School) -> None:
    submission = graded(school)
    change(school.client("grader"), submission, kind="waive", target="pipes", reason="Fine.")
    with school.store.read() as session:
        grade = session.query(tables.Grade).filter_by(submission_id=submission).one()
        found = carry_over.load_carry_over(session, [(grade.id, grade.id)])[grade.id]
        assert [one.kind for one in found.kept.changes] == ["waive"]
        assert found.kept.conflicts == ()


def test_totals_above_the_maximum_stand_everywhere(school: School) -> None:
    submission = graded(school, pipe=1.0, released=True)
    assert points(school, submission) == (11.0, 0.0, 11.0)
    teacher = school.client("teacher")
    for path in (
        f"/courses/{school.course}/grades",
        f"/assignments/{school.assignment}/review",
        f"/assignments/{school.assignment}/statistics",
        f"/submissions/{submission}",
    ):
        answer = teacher.get(path, follow_redirects=True)
        assert (answer.status_code, "11" in answer.get_data(as_text=True)) == (200, True), path
    with school.store.read() as session:
        (row,) = [
            one
            for one in api_lists.list_grades(
                session, session.get_one(tables.Assignment, school.assignment), 0, 50
            )
            if one.student.subject == "anna"
        ]
        assert (row.cells[0].points, row.cells[0].max_points) == (11.0, 10.0)
    assert "11" in text_of(school.client("anna"), "/")


def test_who_submits_reads_beforehand_what_takes_points_off(school: School) -> None:
    shown = text_of(school.client("anna"), f"/assignments/{school.assignment}")
    assert "10 points in total" in shown  # without the bonus
    assert "A moving plot (bonus)" in shown
    assert "Deductions No pipe : deducts 20 % of all points. The course asks for it." in shown
    assert "Template only : caps the total at 50 %." in shown
    assert "uses the pipe" not in shown


@pytest.mark.parametrize(("share", "differs"), [(1.1, False), (1.0, False), (0.9, True), (None, True)])
def test_a_platform_that_cuts_to_the_maximum_does_not_differ(share: float | None, differs: bool) -> None:
    assert (scores.difference(1, (11.0, 10.0, "s"), share) is not None) == differs


def test_what_is_tried_beside_the_grade_shows_deductions_on_both_sides(school: School) -> None:
    was = combine(RUBRIC, Evidence(), {}, {})
    taken = [
        one.model_copy(update={"points": points}) for one, points in zip(was.adjustments, (2, 0), strict=True)
    ]
    now = was.model_copy(update={"adjustments": (taken[0], taken[1]), "points_so_far": -2.0})
    gone = was.model_copy(update={"adjustments": taken[1:]})
    move = impact.GradeImpact.model_construct()
    with school.app.test_request_context():
        assert _adjusted(impact.ReportPair(move=move, before=now, after=gone)) == [("No pipe", 2, None)]
        assert _adjusted(impact.ReportPair(move=move, before=None, after=now)) == [("No pipe", None, 2)]


def test_machines_are_sent_the_same_job_with_and_without_deductions(school: School) -> None:
    """From a submission to what its jobs hold, through the code that prepares and releases."""
    sent = []
    for number, rubric in enumerate(
        (RUBRIC, RUBRIC.model_copy(update={"adjustments": (), "bonus_at_most": None}))
    ):
        with school.store.write() as session:
            row, _, _ = versions.import_version(
                session,
                "ba",
                NewVersion(f"same{number}", "Same", "python", "after_review", f"v{number}", rubric),
            )
            version = Versions().get(session, versions.published_version(session, row).id)
        documents = (script("x = 1\n", path="work.py", language="python"),)
        submission = ReceivedSubmission("r", "s", "interactive", version, documents, Identity(), {})
        made = make_ready(submission, Plan(), {})
        assert len(made.evidence.adjustments) == len(rubric.adjustments)
        sent.append((version.rubric_json, version.materials, made.hidden_evidence.model_dump(mode="json")))
    assert sent[0] == sent[1]
    assert "pipe" not in str(sent)
