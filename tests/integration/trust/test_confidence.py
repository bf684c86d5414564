"""The chance that a graded level is wrong: scored from reports, fitted on marks, kept by calibrations."""

from __future__ import annotations

from pathlib import Path

from grading.domain.evidence import Flag
from grading.domain.jobs import Provenance, Tokens
from grading.domain.report import Report
from grading.store import tables
from grading.store.database import now
from grading.store.trust import confidence
from tests.integration.grades.classroom import a_report, change, mark, round_of, student
from tests.integration.webapp import School
from workers.machine.messages import QUOTES_NOT_FOUND


def sure(report: Report, load: int | None, think: int | None, *flags: Flag, prompt: int = 100) -> Report:
    """The report with the model's own confidence in its levels."""
    said = {"load": load, "think": think}
    criteria = tuple(one.model_copy(update={"confidence": said[one.criterion]}) for one in report.criteria)
    how = Provenance(machine="m", engine="e", model="x", tokens=Tokens(prompt=prompt))
    return report.model_copy(update={"criteria": criteria, "flags": flags, "stages": {"feedback": how}})


def graded(school: School, name: str, report: Report) -> str:
    submission = school.submit(name)
    school.grade(submission, report)
    return submission


def scores(school: School, calibration: int | None = None) -> dict[tuple[str, str], float]:
    with school.store.read() as session:
        return dict(confidence.scores(session, school.assignment, calibration))


def calibrate(school: School) -> int:
    with school.store.write() as session:
        return confidence.calibrate(session, school.course)


def test_scores_follow_the_report_and_calibrations_never_change(school_url: str) -> None:
    school = School(school_url)
    dropped = Flag.of("quote_not_found", QUOTES_NOT_FOUND(count=3))
    one = graded(school, "anna", sure(a_report(3, 3), 95, 50))
    two = graded(school, "ben", sure(a_report(3, 3), 95, None, dropped, prompt=16_000))
    first, second = round_of(school, one), round_of(school, two)
    before = scores(school)
    assert set(before) == {(name, criterion) for name in (first, second) for criterion in ("load", "think")}
    assert before[first, "load"] < before[first, "think"]
    assert before[first, "load"] < before[second, "load"]  # quotes that nobody finds

    with school.store.write() as session:
        opinion = {"criterion": "think", "second": 1}
        session.add(
            tables.SecondOpinion(
                round_id=first, stage="feedback", submission_id=one, assignment_id=school.assignment,
                state="done", opinions=[opinion], apart=1, created_at=now(session),
            )
        )  # fmt: skip
    apart = scores(school)
    assert apart[first, "think"] > before[first, "think"]
    before = apart

    empty = calibrate(school)
    assert (empty, scores(school)) == (calibrate(school), before)
    for n in range(8):
        student(school, f"s{n}")
        work = graded(school, f"s{n}", sure(a_report(3, 3), 95, 60))
        mark(school, work, "load", 3)
        mark(school, work, "think", 1)
    change(school, one, "load", 4)
    fitted = calibrate(school)
    assert fitted != empty
    assert calibrate(school) == fitted
    after, still = scores(school), scores(school, empty)
    assert {key: still[key] for key in before} == before
    assert after[first, "think"] > before[first, "think"]
    with school.store.read() as session:
        stored = session.get_one(tables.Calibration, fitted)
        assert (stored.marks, stored.wrong) == (17, 8)
    school.close()


def test_the_page_says_how_far_chances_can_be_believed(tmp_path: Path) -> None:
    school = School(tmp_path)
    teacher = school.client("teacher")
    address = f"/assignments/{school.assignment}/trust/confidence"
    assert "Not known yet" in teacher.get(address).text
    for n in range(14):
        student(school, f"s{n}")
        work = graded(school, f"s{n}", sure(a_report(3, 3), 95, 80))
        mark(school, work, "load", 3, blind=n > 8)
        mark(school, work, "think", 3 if n else 1, blind=n > 8)
        if n == 2:
            assert "People have given only 6 levels so far." in teacher.get(address).text
    page = teacher.get(address).text
    assert "of these 10 levels to be right, and people found 100 % right" in page  # the blind ones
    assert "those of 5 submissions that people marked" in page
    assert "of these 10 levels to be wrong, and people found 0 wrong" in page
    assert "The model's own confidence" in page
    assert "Nothing. A proof of what may be released unread" in page
    with school.store.write() as session:
        for one in session.query(tables.Mark):
            one.level, one.blind = 0, True
    assert "Review these grades: many levels are wrong" in teacher.get(address).text
    assert "people found" in teacher.get(f"{address}?of=course").text
    for shown in (address, f"/assignments/{school.assignment}/second-marking"):
        assert "so nobody can say how far people agree" in teacher.get(shown).text
    assert teacher.get(f"/assignments/{school.elsewhere}/trust/confidence").status_code == 404
    school.close()
