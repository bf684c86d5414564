"""Dataset of the benchmark of pages: a school of any size.

The product's own functions make one submission; SQL copies it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from sqlalchemy import delete, func, insert, select, text
from sqlalchemy.orm import Session

from bench.pages.copies import copy_submissions
from bench.pages.school import School, Size
from grading.documents import SubmittedFiles, UploadedFile, read, set_apart
from grading.documents.limits import Limits
from grading.domain.document import Document, Location
from grading.domain.evidence import CheckOutcome, Flag
from grading.domain.jobs import Finding, Provenance, Suggestion
from grading.domain.report import CriterionGrade, Report
from grading.domain.round_states import RoundState
from grading.domain.rubric import Criterion, Rubric
from grading.domain.stages import AnalysisOutput, FeedbackOutput
from grading.similarity import Answer, Outcome, answers_of, marks_of, packed
from grading.store import Store, tables
from grading.store.accounts import users
from grading.store.assignments import versions
from grading.store.assignments.versions import NewVersion
from grading.store.database import now
from grading.store.submissions import intake
from grading.store.submissions.intake import IncomingSubmission

COURSE = "bench"
CRITERIA = 6
WORK = "".join(
    f"# Step {number}\nsales_{number} = load('sales.csv', {number})\nprint(sales_{number}.mean())\n\n"
    for number in range(60)
)
WORDS = "The data is read once, looked at before anything else, and the missing values are named. "
STAFF = ("admin", "teacher", "grader")


def make(store: Store, size: Size) -> School:
    """Fill an empty, migrated database."""
    with store.write() as session:
        school = add_people(session, size)
        first = _first(session, school, size)
        copy_submissions(session, school, first, size)
    if store.engine.dialect.name == "postgresql":
        with store.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("vacuum analyze"))
    return school


def find(session: Session) -> School | None:
    """The school that was made in this database before; None where there is none."""
    course = session.scalar(select(tables.Course.id).where(tables.Course.slug == COURSE))
    if course is None:
        return None
    of_it = select(tables.Assignment.id).where(tables.Assignment.course_id == course)
    assignments = session.scalars(of_it.order_by(tables.Assignment.id)).all()
    version = select(tables.RubricVersion.id).where(tables.RubricVersion.assignment_id == assignments[0])
    known = select(tables.Identity.user_id).where(tables.Identity.provider == "local")
    staff = {name: session.scalars(known.where(tables.Identity.subject == name)).one() for name in STAFF}
    theirs = known.where(tables.Identity.subject.not_in(STAFF)).order_by(tables.Identity.user_id)
    return School(course, assignments, session.scalars(theirs).all(), staff, session.scalars(version).one())


def add_people(session: Session, size: Size) -> School:
    """People, courses and their assignments in an empty database, without submissions."""
    rubric = Rubric(
        criteria=tuple(
            Criterion(
                id=f"c{n}", title=f"Criterion {n}", points=10, stage="feedback" if n % 2 else "analysis"
            )
            for n in range(CRITERIA)
        )
    )
    for number in range(size.assignments):
        new = NewVersion(
            f"hw{number}", f"Homework {number + 1}", "python", "after_review", f"d{number}", rubric
        )
        versions.import_version(session, COURSE, new)
    courses, assignments, known = _copied_courses(session, size.courses)
    staff = {}
    for name, role in zip(STAFF, (None, "instructor", "grader"), strict=True):
        user = users.find_user(session, "local", name) or users.create_user(session, name, name=name)
        user.administrator, staff[name] = name == "admin", user.id
        if role:
            for course in courses[:: size.courses // size.each]:
                users.enrol(session, user.id, course, role)
    students = _students(session, courses, size)
    for numbers in (students, courses, assignments, known):
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), "the database was not empty"
    return School(courses[0], assignments[: size.assignments], students, staff, known[0])


def _students(session: Session, courses: Sequence[int], size: Size) -> list[int]:
    moment = now(session)
    people = [
        {"name": f"Student {n:04d}", "email": f"s{n}@school.example", "created_at": moment}
        for n in range(size.students)
    ]
    added = insert(tables.User).returning(tables.User.id, sort_by_parameter_order=True)
    students = list(session.scalars(added, people))
    known_as = [
        {"user_id": user_id, "provider": "local", "subject": f"s{number:04d}"}
        for number, user_id in enumerate(students)
    ]
    session.execute(insert(tables.Identity), known_as)
    apart = size.courses // size.each
    members = [
        {"user_id": user_id, "course_id": course, "role": "student"}
        for number, user_id in enumerate(students)
        for course in courses[number % apart :: apart]
    ]
    session.execute(insert(tables.Membership), members)
    return students


def _copied_courses(session: Session, count: int) -> tuple[list[int], list[int], list[int]]:
    """Ids of courses, assignments and rubric versions, when there are so many courses like the only one."""

    def rows(table: Any) -> list[dict[str, Any]]:
        listed = session.execute(select(table.__table__).order_by(table.id)).mappings()
        return [dict(row) for row in listed]

    (course,), assignments, known = (
        rows(table) for table in (tables.Course, tables.Assignment, tables.RubricVersion)
    )
    ids, each = course["id"], len(assignments)
    first, version = assignments[0]["id"], known[0]["id"]
    for place in range(1, count):
        more = {**course, "id": ids + place, "slug": f"{COURSE}{place}"}
        session.execute(insert(tables.Course), [more])
        moved = [{**row, "id": row["id"] + place * each, "course_id": ids + place} for row in assignments]
        session.execute(insert(tables.Assignment), moved)
        of_them = [
            {**row, "id": row["id"] + place * each, "assignment_id": row["assignment_id"] + place * each}
            for row in known
        ]
        session.execute(insert(tables.RubricVersion), of_them)
    if session.get_bind().dialect.name == "postgresql":
        for table in ("courses", "assignments", "rubric_versions"):
            newest = f"(select max(id) + 1 from {table})"  # noqa: S608 - named here
            session.execute(text(f"select setval(pg_get_serial_sequence('{table}', 'id'), {newest})"))
    total = count * each
    return (
        list(range(ids, ids + count)),
        list(range(first, first + total)),
        list(range(version, version + total)),
    )


def _first(session: Session, school: School, size: Size) -> str:
    """One submission and its round; both are taken away again when all are copied. The submission's id."""
    content = _work()
    incoming = IncomingSubmission(school.assignments[0], school.staff["teacher"], "form", content)
    accepted = intake.accept_submission(session, incoming)
    session.execute(delete(tables.Outbox))
    round_ = session.scalar(select(tables.Round).where(tables.Round.submission_id == accepted.submission_id))
    assert round_ is not None
    moment = now(session)
    round_.state, round_.prepared_at = size.state, moment
    if size.full is not None:
        round_.prepared = {"documents": [one.model_dump(mode="json") for one in content.documents]}
    session.add_all(_answers(content.documents, round_))
    done = size.state == RoundState.GRADED
    round_.dispatched_at = round_.finished_at = moment if done else None
    for stage in round_.stages:
        stage.state = "done" if done else "waiting"
    if done:
        whole = report()
        session.add(
            tables.Grade(
                round_id=round_.id, submission_id=accepted.submission_id, points=whole.points,
                points_so_far=whole.points_so_far, final_points=whole.points, max_points=whole.max_points,
                report=whole.model_dump(mode="json"), created_at=moment, released_at=moment,
            )
        )  # fmt: skip
        for stage in round_.stages:
            origin = whole.stages[stage.stage]
            result = {"ok": True, "output": {}, "provenance": origin.model_dump(mode="json")}
            session.add(
                tables.Run(
                    round_id=round_.id, stage=stage.stage, attempt=1, state="done", accepted=True,
                    machine=origin.machine, result=result, dispatched_at=moment, finished_at=moment,
                    engine=origin.engine, model=origin.model, seconds=11.0, output_tokens=512,
                )
            )  # fmt: skip
    session.flush()
    return accepted.submission_id


def _work() -> SubmittedFiles:
    return read([UploadedFile("work.py", WORK.encode())], Limits())


def _answers(documents: Sequence[Document], round_: tables.Round) -> Iterator[tables.Answer]:
    """Those of all criteria, whose keys leave room for a number, and of the whole work."""
    own, rubric = set_apart(documents), Rubric.model_validate(round_.rubric_version.rubric)
    found = {**answers_of(own, rubric), "": Answer(fingerprints=frozenset(m.value for m in marks_of(own)))}
    for criterion, answer in found.items():
        yield tables.Answer(
            round_id=round_.id, submission_id=round_.submission_id, criterion=criterion,
            assignment_id=round_.rubric_version.assignment_id, key=answer.key[:30],
            fingerprints=packed(answer.fingerprints, 256), outcome=Outcome(share=0.5).model_dump(mode="json"),
            regions=[region.model_dump(mode="json") for region in answer.regions],
        )  # fmt: skip


def report() -> Report:
    """As long as those of real submissions."""
    origin = Provenance(machine="dgx-spark-1", engine="ollama", model="qwen3-coder:30b", seconds=11.2)
    check = CheckOutcome(check="c1", label="reads a file", earned=1, message="found load('sales.csv')")
    criteria = tuple(
        CriterionGrade(
            criterion=f"c{n}", title=f"Criterion {n}", stage="feedback" if n % 2 else "analysis", points=8,
            max_points=10, level=3, highest=4, basis="checks and model", reason=WORDS * 2,
            evidence=(check,) * 2,
        )
        for n in range(CRITERIA)
    )  # fmt: skip
    place = Location(document="work.py", cell=1, line=3)
    findings = tuple(
        Finding(severity="minor", title=f"Finding {n}", detail=WORDS, location=place) for n in range(6)
    )
    advice = tuple(
        Suggestion(what=f"Look at {n}", why=WORDS, how=WORDS, example="x = 1", location=place)
        for n in range(3)
    )
    told = FeedbackOutput(
        judgements=(), achieved=WORDS * 2, reflection=WORDS * 2, strengths=(WORDS,) * 3, practice=WORDS,
        develop=(WORDS,) * 2, next_step=WORDS,
    )  # fmt: skip
    return Report(
        status=RoundState.GRADED, criteria=criteria, points=48, points_so_far=48, max_points=60,
        flags=(Flag(code="look", message="Flags"),),
        analysis=AnalysisOutput(judgements=(), summary=WORDS * 2, findings=findings, suggestions=advice),
        feedback=told, stages={"analysis": origin, "feedback": origin},
    )  # fmt: skip


def counted(session: Session) -> int:
    """How many submissions there are."""
    return session.scalar(select(func.count()).select_from(tables.Submission)) or 0


def add_activity(store: Store, school: School, count: int) -> None:
    """What people add to gradings, so many of each, about submissions of the first assignment."""
    with store.write() as session:
        moment = now(session)
        version = session.scalar(
            select(tables.RubricVersion.id).where(tables.RubricVersion.assignment_id == school.assignments[0])
        )
        rows = _about(session, school, count)
        session.add_all(_stress_test(school, version, [row.id for row in rows], moment))
        session.add_all(_trial(school, rows, moment))
        session.add_all(_similar(school, sorted(row.id for row in rows), moment))
        for number, row in enumerate(rows):
            dry = tables.DryRun(
                assignment_id=school.assignments[0], rubric_version_id=version,
                by=school.staff["teacher"], created_at=moment,
            )  # fmt: skip
            session.add(dry)
            session.flush()
            session.add_all([*_of_staff(school, number, row, dry.id, moment), *_of_lms(number, row, moment)])
            for owner in (school.staff["teacher"], school.students[0]):
                users.create_token(session, owner, f"t{number}", ("read",), timedelta(days=1))
            if number < len(school.students):
                session.add(_extension(school, school.students[number], moment))


def _about(session: Session, school: School, count: int) -> Sequence[Any]:
    """(id, student_id, round) of the first submissions of the first assignment."""
    query = select(tables.Submission.id, tables.Submission.student_id, tables.Round.id.label("round"))
    query = query.join(tables.Round, tables.Round.submission_id == tables.Submission.id)
    mine = query.where(tables.Submission.assignment_id == school.assignments[0])
    return session.execute(mine.order_by(tables.Submission.id).limit(count)).all()


def _of_staff(school: School, number: int, row: Any, dry_run_id: str, moment: datetime) -> list[object]:
    """What the teacher adds to a submission, and what its student asks."""
    by = school.staff["teacher"]
    of_it = {"round_id": row.round, "submission_id": row.id, "by": by, "at": moment}
    return [
        tables.Change(kind="adjust", target="total", value={"points": 1}, before={}, reason="r", **of_it),
        tables.Mark(criterion=f"c{number % CRITERIA}", level=2, **of_it),
        tables.Example(
            assignment_id=school.assignments[0], submission_id=row.id, criterion="c0", excerpt="x",
            level=2, by=by, at=moment,
        ),
        tables.RegradeRequest(
            submission_id=row.id, round_id=row.round, student_id=row.student_id,
            course_id=school.course, reason="please", created_at=moment,
        ),
        tables.SavedComment(course_id=school.course, text=f"{number}", by=by, at=moment),
        tables.DryRunRound(dry_run_id=dry_run_id, submission_id=row.id, round_id=row.round),
    ]  # fmt: skip


def _trial(school: School, rows: Sequence[Any], moment: datetime) -> list[object]:
    """A trial of a model on each of these submissions."""
    of_it: dict[str, Any] = {
        "assignment_id": school.assignments[0],
        "stage": "analysis",
        "engine": "rules",
        "model": "m",
    }
    trial = tables.ModelTrial(id=tables.new_id(), created_at=moment, by=school.staff["teacher"], **of_it)
    outcome = {"ok": True, "levels": {"c0": 2}, "seconds": 1.0}
    runs = [
        tables.ShadowRun(
            trial_id=trial.id, submission_id=row.id, round_id=row.round, state="done", outcome=outcome,
            finished_at=moment, **of_it,
        )
        for row in rows
    ]  # fmt: skip
    return [trial, *runs]


def _stress_test(school: School, version: int | None, ids: Sequence[str], moment: datetime) -> list[object]:
    """A stress test with a variant of each of these submissions that is graded, and one as it is."""
    test = tables.StressTest(
        id=tables.new_id(), assignment_id=school.assignments[0], rubric_version_id=version,
        by=school.staff["teacher"], seed=1, created_at=moment, finished_at=moment,
    )  # fmt: skip
    got = {"criteria": {}, "total": 1.0, "held": False, "flags": []}
    kinds = (("unchanged.1", "unchanged", "same"), ("praise.prose", "praise", "not higher"))
    variants = [
        tables.StressVariant(
            stress_test_id=test.id, source_id=one, key=key, family=family, expects=expects, ended=True,
            outcome=got,
        )
        for one in ids
        for key, family, expects in kinds
    ]  # fmt: skip
    return [test, *variants]


def _similar(school: School, ids: Sequence[str], moment: datetime) -> list[object]:
    """What a comparison found: each submission like the one before it."""
    marks = packed((mark.value for mark in marks_of(set_apart(_work().documents))), 500)
    first = school.assignments[0]
    pairs = [
        tables.SimilarPair(assignment_id=first, one_id=one, other_id=other, share=0.9, fingerprints=marks)
        for one, other in pairwise(ids)
    ]
    found = tables.Comparison(
        assignment_id=first, compared_at=moment, works=len(ids), earlier=0, silent=list(ids)
    )
    return [found, *pairs]


def _of_lms(number: int, row: Any, moment: datetime) -> list[object]:
    """What was sent of a submission, again and again, and refused."""
    return [
        tables.Outbox(
            kind="to:lms", key=f"k{number}", payload={"submission": row.id}, created_at=moment,
            not_before=moment, done_at=moment, error="answered 500", tries=9,
        ),
        tables.Outbox(
            kind="test:lms", key=f"test:{number}", payload={"type": "grade.released"}, created_at=moment,
            not_before=moment, done_at=moment, tries=1,
        ),
        tables.SentMessage(
            receiver="lms", message_id=f"m{number}", event=f"k{number}", type="grade.released",
            submission_id=row.id, attempt=9, at=moment, seconds=0.1, url="https://lms.example/",
            headers={}, body="{}", status=500, error="answered 500", answer="no",
        ),
    ]  # fmt: skip


def _extension(school: School, student: int, moment: datetime) -> tables.Extension:
    by = school.staff["teacher"]
    return tables.Extension(
        assignment_id=school.assignments[0], student_id=student, by=by, at=moment,
        due_at=moment + timedelta(days=1),
    )  # fmt: skip


def url_arguments(session: Session, school: School) -> dict[str, object]:
    """What each argument of an address may be called, of those that there are."""
    first = school.assignments[0]
    query = select(tables.Submission.id, tables.Round.id, tables.Run.id)
    query = query.join(tables.Round, tables.Round.submission_id == tables.Submission.id)
    query = query.outerjoin(tables.Run, tables.Run.round_id == tables.Round.id)
    theirs = (tables.Submission.assignment_id == first, tables.Submission.student_id == school.students[0])
    row = session.execute(query.where(*theirs).order_by(tables.Submission.id).limit(1)).one()
    submission, round_, run = row
    found: dict[str, object] = {
        "course_id": school.course, "assignment_id": first, "submission_id": submission, "id": submission,
        "round_id": round_, "run_id": run or "0", "user_id": school.students[0], "filename": "x",
        "student_id": school.students[0], "connection": "canvas", "number": 1, "language": "en",
        "version_number": 1, "path": "work.py", "file_path": "work.py", "secret": "x",
        "draft_id": "0" * 32, "upload_id": "0" * 32,
        "batch_id": "0" * 32, "document": 0, "cell": 1, "machine": "dgx-spark-1",
        "platform_id": 1, "context_id": 1, "secret_id": 1, "name": "none",
        "identity_id": 1, "launch_id": "0" * 32, "ticket": "x",
        "receiver": "lms", "kind": "submission.created", "key": "test:1", "criterion": "c0",
        "other_id": "0" * 32,
    }  # fmt: skip
    pair = select(tables.SimilarPair.other_id).where(tables.SimilarPair.one_id == submission)
    if (other := session.scalar(pair.limit(1))) is not None:
        found["other_id"] = other
    found |= _first_ids(session)
    mine = (tables.Answer.assignment_id == first, tables.Answer.criterion == found["criterion"])
    found["group"] = session.scalar(
        select(tables.Answer.key).where(*mine).order_by(tables.Answer.key).limit(1)
    )
    # ids are random: the first dry run would be one of this submission by chance only
    of_it = select(tables.DryRunRound.dry_run_id).where(tables.DryRunRound.submission_id == submission)
    if (dry_run := session.scalar(of_it.limit(1))) is not None:
        found["dry_run_id"] = dry_run
    return found


def _first_ids(session: Session) -> dict[str, object]:
    """The first id of each kind that there is, by the name of its argument."""
    kinds: dict[str, Any] = {
        "version_id": tables.RubricVersion, "change_id": tables.Change, "mark_id": tables.Mark,
        "example_id": tables.Example, "request_id": tables.RegradeRequest, "dry_run_id": tables.DryRun,
        "stress_test_id": tables.StressTest, "trial_id": tables.ModelTrial, "comment_id": tables.SavedComment,
        "token_id": tables.Token, "delivery_id": tables.SentMessage,
    }  # fmt: skip
    first = {
        name: session.scalar(select(table.id).order_by(table.id).limit(1)) for name, table in kinds.items()
    }
    return {name: known for name, known in first.items() if known is not None}
