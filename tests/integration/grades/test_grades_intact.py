"""Grades under everything that moves them at once: whoever comes first, what is kept is what changes give."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import permutations
from pathlib import Path

import pytest
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from grading.checks.kinds.code import Uses
from grading.checks.kinds.runs import RunsClean
from grading.config.settings import load
from grading.domain.errors import CannotUndo, Conflict, GraderError, NotFound
from grading.domain.lateness import LateRule
from grading.domain.permissions import Actor
from grading.domain.report import Report
from grading.domain.report_changes import Change
from grading.domain.rubric import Adjustment, Criterion, Rubric
from grading.scoring import settled
from grading.scoring.curves import Curve
from grading.store import Store, schema, tables
from grading.store.accounts import users
from grading.store.assignments import settings as assignment_settings
from grading.store.assignments import versions
from grading.store.completion import finish_round
from grading.store.database import now
from grading.store.experiments import apply, dry_runs
from grading.store.grades import extensions
from grading.store.grades import release as grade_release
from grading.store.grades.change_history import stamp
from grading.store.grades.final_score import lateness_of, list_changes
from grading.store.review import answer_groups, edits, item_changes, regrade_requests, rubric_items
from grading.store.review import curves as grade_curves
from grading.store.review.bulk_changes import undo_bulk
from grading.store.review.group_changes import GroupChange, GroupResult, change_group
from grading.store.review.regrade_requests import Answer
from grading.store.rounds import lifecycle, retry
from grading.store.submissions import intake
from grading.store.tables import Assignment, Audit, Grade, Outbox, Round, RubricVersion, Submission
from grading.store.views import submission as submission_view
from tests.integration.experiments.test_dry_runs import grade, heartbeat
from tests.support.factories import RUBRIC, add_assignment, begin_stage, result, submit
from tests.support.lock_waits import waits_or_is_over
from workers.server import record
from workers.server.admit import admit_runs
from workers.server.context import Server, open_server
from workers.server.prepare import prepare

TEACHER = Actor(1)
WANTED = Change(kind="points", target="code", points=55, reason="seen")
Act = Callable[[Session], object]


@pytest.fixture
def server(fresh_database: Callable[..., str], redis_url: str, root: Path) -> Iterator[Server]:
    environ = {"GRADER_DATABASE_URL": fresh_database(schema.upgrade), "GRADER_REDIS_URL": redis_url}
    made = open_server(load(root / "config.toml", environ))
    with made.store.write() as session:
        assert users.create_user(session, "teacher", name="Teacher").id == TEACHER.user_id
    yield made
    made.store.close()
    made.dispatch.registry.redis.close()
    made.dispatch.celery.close()


def idle_machine(server: Server) -> None:
    """One machine with nothing before it: what was sent to it and answered here is no backlog of its own."""
    server.dispatch.registry.redis.flushdb()
    heartbeat(server)


def given(server: Server, slug: str = "sales", ok: bool = True) -> str:
    """A graded submission of an assignment of its own, two and a half days late, at half for each day."""
    idle_machine(server)
    assignment_id = add_assignment(server.store, slug)
    made = submit(server.store, assignment_id, "s1")
    with server.store.write() as session:
        assignment = session.get_one(Assignment, assignment_id)
        assignment.due_at, assignment.late = now(session) - timedelta(days=2.5), {"per_day": 0.1}
    grade(server, made.round_id, ok=ok)
    return made.submission_id


def assignment_of(session: Session, submission: str) -> Assignment:
    return session.get_one(Submission, submission).assignment


def seen(session: Session, submission: str) -> str:
    return stamp(session, submission_view.load_view(session, submission).round_id)


def change(session: Session, submission: str, points: float = 55.0) -> None:
    wanted = Change(kind="points", target="code", points=points, reason="seen")
    edits.change_grade(session, submission, wanted, seen(session, submission), TEACHER)


def curve(session: Session, submission: str, by: float = 3.0) -> None:
    assignment, rule = assignment_of(session, submission), Curve(kind="add", points=by)
    before = grade_curves.preview_curve(session, assignment, rule).seen
    grade_curves.apply_curve(session, assignment, rule, TEACHER, seen=before, reason="hard")


def settings(session: Session, submission: str, **changed: object) -> None:
    assignment = assignment_of(session, submission)
    said = assignment_settings.settings_of(assignment).model_copy(update=changed)
    extensions.apply_settings(session, assignment, said, TEACHER)


def the_grade(session: Session, submission: str) -> Grade:
    query = select(Grade).join(Round, Round.id == Grade.round_id)
    return session.scalars(query.where(Round.submission_id == submission, Round.current)).one()


def intact(store: Store) -> None:
    """Every grade is what its report, its changes and its lateness give, and one round counts."""
    with store.read() as session:
        for one in session.scalars(select(Grade)):
            of = list_changes(session, one.round_id)
            credit = lateness_of(session, session.get_one(Submission, one.submission_id)).credit
            made = settled(Report.model_validate(one.report), of, credit)
            kept = (one.points, one.adjustment, one.credit, one.final_points, one.criterion_points)
            by_criterion = {c.criterion: c.points for c in made.report.criteria}
            assert kept == (made.points, made.adjustment, credit, made.final_points, by_criterion)
        for submission in session.scalars(select(Submission.id)):
            rounds = session.scalars(select(Round).where(Round.submission_id == submission, Round.current))
            assert len(rounds.all()) == 1
        changed = session.scalars(select(tables.Change.id).where(tables.Change.bulk == "")).all()
        noted = session.scalars(select(Audit).where(Audit.action == "grade.change")).all()
        made_by_hand = {one.detail["change"] for one in noted if "change" in one.detail}
        assert made_by_hand <= set(changed)


# --- what moves, moves all that depends on it ---------------------------------------------------------


def test_a_partial_grade_that_is_graded_again_keeps_what_people_changed(server: Server) -> None:
    submission = given(server, ok=False)
    with server.store.write() as session:
        change(session, submission)
        round_id = submission_view.load_view(session, submission).round_id
        assert the_grade(session, submission).final_points is None
    with server.store.write() as session:
        assert retry.retry_round(session, round_id, "user:1")
    finish_under_way(server, round_id)
    intact(server.store)
    with server.store.read() as session:
        assert the_grade(session, submission).criterion_points["code"] == 55
        assert the_grade(session, submission).final_points is not None


def test_a_deduction_is_computed_kept_waived_and_goes_on_to_another_grading(server: Server) -> None:
    """From the submission to the grade, and to the next one, in the database."""
    pipes = Adjustment(id="pipes", title="No pipe", deduct=0.1, unless=(Uses(all_of=("%>%",)),))
    run = Adjustment(id="run", title="Does not run", cap=0.2, unless=(RunsClean(),))
    rubric = RUBRIC.model_copy(update={"adjustments": (pipes,)})
    idle_machine(server)
    made = submit(server.store, add_assignment(server.store, rubric=rubric))
    grade(server, made.round_id)
    intact(server.store)
    with server.store.write() as session:
        first = the_grade(session, made.submission_id)
        assert first.points == sum(first.criterion_points.values()) - 10
        edits.change_grade(
            session, made.submission_id, Change(kind="waive", target="pipes", reason="r"),
            seen(session, made.submission_id), TEACHER,
        )  # fmt: skip
        assert first.points == sum(first.criterion_points.values())
    intact(server.store)
    with server.store.write() as session:
        grade_release.release_grade(session, the_grade(session, made.submission_id).round_id, TEACHER)
        asked = regrade_requests.create_request(
            session, Actor(2), made.submission_id, "reflection", "Please look again at it."
        )
        new = regrade_requests.answer_request(
            session, TEACHER, asked, Answer(verdict="again", words="We will see.")
        )
    assert new is not None
    grade(server, new)
    intact(server.store)
    with server.store.read() as session:
        again = the_grade(session, made.submission_id)
        assert (again.round_id, again.points) == (new, sum(again.criterion_points.values()))
    # what only a run could tell waits for a person, and takes nothing
    other = RUBRIC.model_copy(update={"adjustments": (run,)})
    unrun = submit(server.store, add_assignment(server.store, "unrun", rubric=other), "s2")
    without(server, unrun.round_id)
    with server.store.read() as session:
        held = the_grade(session, unrun.submission_id)
        assert (held.held, held.points) == (True, sum(held.criterion_points.values()))


def without(server: Server, round_id: str) -> None:
    """Grade a round whose work is not run: there is no sandbox."""
    assert prepare(server, round_id, without="There is no sandbox.")
    grade(server, round_id, prepared=True)


def finish_under_way(server: Server, round_id: str) -> None:
    """Let the machines do again what is due of a round, and combine it."""
    with server.store.write() as session:
        order = begin_stage(session, round_id, "feedback")
        assert order is not None
    record.record(server, [result(order.run_id, round_id, "feedback")])


def test_graded_again_on_request_keeps_what_people_changed_and_the_curve(server: Server) -> None:
    submission = given(server)
    with server.store.write() as session:
        change(session, submission)
    with server.store.write() as session:
        curve(session, submission)
        grade_release.release_grade(session, the_grade(session, submission).round_id, TEACHER)
    with server.store.write() as session:
        before = the_grade(session, submission).final_points
        asked = regrade_requests.create_request(
            session, Actor(2), submission, "reflection", "Please look again at it."
        )
        new = regrade_requests.answer_request(
            session, TEACHER, asked, Answer(verdict="again", words="We will see.")
        )
    assert new is not None
    grade(server, new)
    intact(server.store)
    with server.store.read() as session:
        assert the_grade(session, submission).round_id == new
        assert the_grade(session, submission).final_points == before


def test_what_was_withdrawn_is_not_released_by_being_graded_again(server: Server) -> None:
    submission = given(server)
    with server.store.write() as session:
        round_id = the_grade(session, submission).round_id
        grade_release.release_grade(session, round_id, TEACHER)
        asked = regrade_requests.create_request(session, Actor(2), submission, "", "Please look again at it.")
    with server.store.write() as session:
        grade_release.withdraw_grade(session, round_id, TEACHER)
        settings(session, submission, release="at_once")
        new = regrade_requests.answer_request(
            session, TEACHER, asked, Answer(verdict="again", words="We will see.")
        )
    assert new is not None
    grade(server, new)
    with server.store.read() as session:
        assert the_grade(session, submission).released_at is None
        found = submission_view.load_view(session, submission).grade
        assert found is not None
        assert found.withdrawn


def test_a_released_grade_that_a_date_moves_is_told_and_written_down(server: Server) -> None:
    submission = given(server)
    with server.store.write() as session:
        grade_release.release_grade(session, the_grade(session, submission).round_id, TEACHER)
    for act in (
        lambda s: settings(s, submission, late=LateRule(per_day=0.2)),
        lambda s: extensions.grant_extension(s, assignment_of(s, submission), [2], now(s), "ill", TEACHER),
        lambda s: extensions.revoke_extension(s, assignment_of(s, submission), 2, TEACHER),
    ):
        with server.store.write() as session:
            act(session)
    intact(server.store)
    with server.store.read() as session:
        noted = session.scalars(select(Audit).where(Audit.action == "grade.late").order_by(Audit.id)).all()
        assert [(one.detail["from"], one.detail["to"]) for one in noted] == [(14, 8), (8, 20), (20, 8)]
        told = session.scalars(select(Outbox).where(Outbox.key.startswith("changed:"))).all()
        assert [one.payload["type"] for one in told] == ["grade.changed"] * 3


def test_an_extension_is_never_worse_than_the_date_of_all(server: Server) -> None:
    submission = given(server)
    with server.store.write() as session:
        due = assignment_of(session, submission).due_at
        assert due is not None
        extensions.grant_extension(
            session, assignment_of(session, submission), [2], due + timedelta(hours=1), "ill", TEACHER
        )
    with server.store.write() as session:
        settings(session, submission, due=now(session) + timedelta(days=1))
    intact(server.store)
    with server.store.read() as session:
        assert the_grade(session, submission).credit == 1


def test_a_held_grading_that_takes_anothers_place_waits_for_a_person_again(server: Server) -> None:
    submission = given(server)
    with server.store.write() as session:
        edits.accept_grade(session, submission, seen(session, submission), TEACHER)
    with server.store.write() as session:
        run = dry_run(session, submission, RUBRIC)
    grade(server, *run.round_ids)
    with server.store.write() as session:
        new = session.scalars(select(Grade).where(Grade.round_id == run.round_ids[0])).one()
        new.held = True
    with server.store.write() as session:
        assert apply.apply_dry_run(session, run.dry_run_id, TEACHER, keep_released=False).replaced == 1
    with server.store.read() as session:
        one = the_grade(session, submission)
        assert (one.held, one.reviewed_at) == (True, None)


# --- at the same moment -------------------------------------------------------------------------------


def dry_run(session: Session, submission: str, rubric: Rubric) -> dry_runs.StartedDryRun:
    """A dry run of another version on one submission."""
    assignment = assignment_of(session, submission)
    counts = versions.published_version(session, assignment)
    draft = RubricVersion(
        assignment_id=assignment.id,
        number=counts.number + 1,
        digest="draft",
        rubric=rubric.model_dump(mode="json"),
        instructions=counts.instructions,
        starter=counts.starter,
        solution=counts.solution,
        files=counts.files,
        created_at=now(session),
        note="",
        published_at=None,
    )
    session.add(draft)
    session.flush()
    return dry_runs.start_dry_run(session, assignment, draft, [submission], "rubric", TEACHER)


HALF = Rubric(
    criteria=(RUBRIC.criteria[0], Criterion(id="reflection", title="Reflection", points=20, stage="feedback"))
)


def acts(server: Server, submission: str) -> dict[str, Act]:
    """What people do to one submission, with what each of them saw before."""
    store = server.store
    with store.write() as session:
        curve(session, submission, 2.0)
        (bulk,) = grade_curves.list_applied_curves(session, assignment_of(session, submission).id)
    with store.write() as session:
        run = dry_run(session, submission, HALF)
    grade(server, *run.round_ids)
    with store.write() as session:
        grade_release.release_grade(session, the_grade(session, submission).round_id, TEACHER)
    rule = Curve(kind="add", points=3)
    with store.read() as session:
        stamped, round_id = seen(session, submission), submission_view.load_view(session, submission).round_id
        looked = grade_curves.preview_curve(session, assignment_of(session, submission), rule).seen
        student = session.get_one(Submission, submission).student_id
        due = assignment_of(session, submission).due_at
        assert due is not None
    own = due + timedelta(days=1)

    def of(session: Session) -> Assignment:
        return assignment_of(session, submission)

    return {
        "change": lambda s: edits.change_grade(s, submission, WANTED, stamped, TEACHER),
        "replace": lambda s: apply.apply_dry_run(s, run.dry_run_id, TEACHER, keep_released=False),
        "curve": lambda s: grade_curves.apply_curve(s, of(s), rule, TEACHER, seen=looked, reason="hard"),
        "uncurve": lambda s: grade_curves.undo_curve(s, of(s), bulk.id, TEACHER),
        "extend": lambda s: extensions.grant_extension(s, of(s), [student], own, "ill", TEACHER),
        "rule": lambda s: settings(s, submission, late=LateRule(per_day=0.2)),
        "withdraw": lambda s: grade_release.withdraw_grade(s, round_id, TEACHER),
        "accept": lambda s: edits.accept_grade(s, submission, stamped, TEACHER),
    }


def at_once(store: Store, first: Act, second: Act) -> tuple[str, str]:
    """The second begins while the first is not committed yet; what each of them came to, or why not."""
    said: dict[str, str] = {}

    def follow() -> None:
        said["second"] = tried(store, second)

    thread = threading.Thread(target=follow, daemon=True)
    try:
        with store.write() as session:
            first(session)
            session.flush()
            thread.start()
            waits_or_is_over(store, thread)
        said["first"] = "done"
    except GraderError as refused:
        said["first"] = refused.code
    thread.join(60)
    assert not thread.is_alive()
    return said["first"], said["second"]


def tried(store: Store, act: Act) -> str:
    try:
        with store.write() as session:
            act(session)
    except GraderError as refused:
        return refused.code
    except SQLAlchemyError as error:  # of a thread: the test says it
        return repr(error)
    return "done"


NAMES = ("change", "replace", "curve", "uncurve", "extend", "rule", "withdraw", "accept")
SHORT = (
    ("change", "extend"),
    ("rule", "change"),
    ("replace", "change"),
    ("replace", "withdraw"),
    ("replace", "curve"),
    ("curve", "rule"),
    ("uncurve", "replace"),
)
"""Those in which something once got lost."""


def test_two_at_once_lose_nothing_of_each_other(server: Server) -> None:
    for first, second in SHORT:
        play(server, first, second)


@pytest.mark.soak
def test_any_two_at_once_lose_nothing_of_each_other(server: Server) -> None:
    for first, second in permutations(NAMES, 2):
        play(server, first, second)


def play(server: Server, first: str, second: str) -> None:
    submission = given(server, f"{first}-{second}")
    act = acts(server, submission)
    came = dict(zip((first, second), at_once(server.store, act[first], act[second]), strict=True))
    told = (first, second, came)
    assert came[first] == "done", told
    assert came[second] in ("done", "changed_meanwhile", "moved_meanwhile", "conflict"), told
    intact(server.store)
    done = {name for name, what in came.items() if what == "done"}
    with server.store.read() as session:
        one = the_grade(session, submission)
        of = list_changes(session, one.round_id)
        assert ("replace" in done) == (one.max_points == 80), told
        assert ("change" in done) == any(c.kind == "points" for c in of), told
        curves = [c.points for c in of if c.kind == "adjust"]
        wanted = [] if "uncurve" in done else [2.0]
        assert curves == wanted + ([3.0] if "curve" in done else []), told
        assert ("withdraw" in done) == (one.released_at is None), told


# --- while machines answer ----------------------------------------------------------------------------


def answered(server: Server, round_id: str) -> Act:
    """Let machines answer a round; what is left to do is to combine it."""
    assert prepare(server, round_id)
    heartbeat(server)
    while admit_runs(server):
        pass
    with server.store.read() as session:
        stages = session.scalars(
            select(tables.RoundStage).where(tables.RoundStage.round_id == round_id)
        ).all()
    for one in stages:
        assert one.run_id is not None
        with server.store.write() as session:
            lifecycle.record_results(session, [result(one.run_id, round_id, one.stage)])
    return lambda session: record._combine(server, session, finish_round.lock_complete(session, round_id))


@pytest.mark.parametrize("turned", [False, True])
def test_a_grade_that_is_made_while_a_date_changes_knows_the_new_one(server: Server, turned: bool) -> None:
    for name in ("rule", "extend"):
        submission = given(server, f"date-{name}")
        with server.store.write() as session:
            assignment = assignment_of(session, submission)
            student, due = session.get_one(Submission, submission).student_id, assignment.due_at
            assert due is not None
            new = intake.add_round(
                session, session.get_one(Submission, submission), assignment, reason="x", priority="batch"
            ).id
        own = due + timedelta(days=1)
        dates: dict[str, Act] = {
            "rule": lambda s, of=submission: settings(s, of, late=LateRule(per_day=0.2)),
            "extend": lambda s, of=submission, who=student, to=own: extensions.grant_extension(
                s, assignment_of(s, of), [who], to, "ill", TEACHER
            ),
        }
        both = [answered(server, new), dates[name]]
        assert at_once(server.store, *(reversed(both) if turned else both)) == ("done", "done")
        intact(server.store)
        with server.store.read() as session:
            assert the_grade(session, submission).round_id == new


@pytest.mark.parametrize("turned", [False, True])
def test_a_re_run_that_comes_in_while_people_work_on_the_grade(server: Server, turned: bool) -> None:
    for name in ("change", "curve", "again"):
        submission = given(server, f"rerun-{name}")
        with server.store.write() as session:
            assignment = assignment_of(session, submission)
            version = versions.published_version(session, assignment)
            run = dry_runs.start_dry_run(session, assignment, version, [submission], "rerun", TEACHER)
            stamped = seen(session, submission)
            looked = grade_curves.preview_curve(session, assignment, Curve(kind="add", points=3)).seen
        people: dict[str, Act] = {
            "change": lambda s, of=submission, at=stamped: edits.change_grade(s, of, WANTED, at, TEACHER),
            "curve": lambda s, of=submission, at=looked: grade_curves.apply_curve(
                s, assignment_of(s, of), Curve(kind="add", points=3), TEACHER, seen=at, reason="hard"
            ),
            "again": lambda s, of=submission: intake.add_round(
                s, handed(s, of), assignment_of(s, of), reason="regrade", priority="batch"
            ),
        }
        both = [answered(server, run.round_ids[0]), people[name]]
        first, second = at_once(server.store, *(reversed(both) if turned else both))
        assert first == "done"
        assert second in ("done", "changed_meanwhile", "moved_meanwhile")
        intact(server.store)
        if "done" == first == second and name != "again":
            with server.store.read() as session:
                kept = list_changes(session, the_grade(session, submission).round_id)
                assert [one.points for one in kept] == [55 if name == "change" else 3]


def handed(session: Session, submission: str) -> Submission:
    return session.get_one(Submission, submission)


# --- groups of answers --------------------------------------------------------------------------------


def group_of(server: Server, assignment_id: int, works: tuple[str, ...]) -> tuple[str, int]:
    """The key of the group that has these submissions, and the newest change."""
    with server.store.read() as session:
        found = answer_groups.load_groups(session, session.get_one(Assignment, assignment_id), "code")
    (group,) = (one for one in found.groups if one.works == tuple(sorted(works)))
    return group.key, found.newest


def a_class(server: Server, *sources: str) -> tuple[int, list[str]]:
    """An assignment and its graded submissions, one a student."""
    idle_machine(server)
    assignment_id = add_assignment(server.store, "groups")
    made = [
        submit(server.store, assignment_id, f"g{n}", source_text=source) for n, source in enumerate(sources)
    ]
    grade(server, *(one.round_id for one in made))
    return assignment_id, [one.submission_id for one in made]


def points_of(server: Server, works: list[str]) -> list[float | None]:
    with server.store.read() as session:
        return [the_grade(session, one).criterion_points["code"] for one in works]


def test_a_group_is_changed_at_once_and_undone_at_once(server: Server) -> None:
    sources = ("x <- 1", "value = 1  # one", "x <- 2", "y <- 1")
    assignment_id, works = a_class(server, *sources)
    with server.store.write() as session:
        grader = users.create_user(session, "grader2", name="Grader")
        assert grader.id != TEACHER.user_id
    other = Actor(grader.id)
    key, newest = group_of(server, assignment_id, (works[0], works[1], works[3]))
    before = points_of(server, works)

    def wanted(change: GroupChange, bulk: str = "b" * 32, by: Actor = TEACHER) -> GroupResult:
        more = {"bulk": bulk, "seen": newest, "actor": by}
        return change_group(server.store, assignment_id, RUBRIC.criteria[0], key, works, change, **more)

    done = wanted(GroupChange(level=4, comment="Say what it is."))
    assert (done.changed, done.skipped) == (3, (works[2],))
    assert points_of(server, works) == [60, 60, before[2], 60]
    intact(server.store)
    with server.store.read() as session:
        (comment,) = (one for one in list_changes(session, the_grade(session, works[1]).round_id) if one.text)
        assert (comment.text, comment.document, comment.line) == ("Say what it is.", "work.R", 1)
        groups = answer_groups.load_groups(session, session.get_one(Assignment, assignment_id), "code")
        assert (groups.graded, groups.next_open().works) == (3, (works[2],))
        points = answer_groups.load_points(session, groups.members_of(groups.group(key)), "code")
        assert set(points.values()) == {60}
        (part,) = answer_groups.load_code(session, works[1], "code")
        assert (part.text, part.language) == (sources[1], "r")
    # the same form again changes nothing; somebody else's, shown before, takes nothing away
    assert wanted(GroupChange(level=4)).changed == 3
    assert wanted(GroupChange(level=0), "c" * 32, other).changed == 0
    with pytest.raises(edits.ChangeRefused):
        wanted(GroupChange(points=3), "d" * 32)
    with server.store.read() as session:
        assert grade_curves.list_applied_curves(session, assignment_id) == ()
        assert session.query(tables.Change).count() == 6
    assert undo_bulk(server.store, assignment_id, "b" * 32, TEACHER) == 3
    assert points_of(server, works) == before
    intact(server.store)
    assert undo_bulk(server.store, assignment_id, "b" * 32, TEACHER) == 0
    with pytest.raises(NotFound):
        undo_bulk(server.store, add_assignment(server.store, "another"), "b" * 32, TEACHER)


def test_a_rubric_item_changes_everywhere_when_it_is_edited(server: Server) -> None:
    assignment_id, works = a_class(server, "x <- 1", "x <- 2", "x <- 1")
    code, store = RUBRIC.criteria[0], server.store
    for work in works:
        with store.write() as session:
            given_points = Change(kind="points", target="code", points=30, reason="r")
            edits.record_change(session, the_grade(session, work), given_points, TEACHER)
    before = points_of(server, works)
    with store.write() as session:
        assignment = session.get_one(Assignment, assignment_id)
        item = rubric_items.add_item(session, assignment, code, " No names.\r\n", -10, TEACHER)
        assert rubric_items.add_item(session, assignment, code, "No names.", -10, TEACHER) == item
        for text_, points in (("", 0), ("x" * 2001, 0), ("x", 61), ("x", float("nan")), ("x", None)):
            with pytest.raises(rubric_items.ItemRefused):
                rubric_items.add_item(session, assignment, code, text_, points, TEACHER)
    apply = Change(kind="item", target=f"code/{item.item}")
    remove = Change(kind="remove_item", target=f"code/{item.item}")
    with store.write() as session:
        with pytest.raises(edits.ChangeRefused):
            edits.record_change(session, the_grade(session, works[0]), remove, TEACHER)
        with pytest.raises(NotFound):
            wrong = Change(kind="item", target=f"code/{'0' * 32}")
            edits.record_change(session, the_grade(session, works[0]), wrong, TEACHER)
        edits.record_change(session, the_grade(session, works[0]), apply, TEACHER)
    # two members of a group, of whom one has it
    key, newest = group_of(server, assignment_id, (works[0], works[2]))
    more = {"seen": newest, "actor": TEACHER}
    group = GroupChange(item=item.item)
    both = [works[0], works[2]]
    done = change_group(store, assignment_id, code, key, both, group, bulk="a" * 32, **more)
    assert done == GroupResult(2, ())
    less = [round(points - 10, 2) for points in before]
    assert points_of(server, works) == [less[0], before[1], less[2]]
    intact(store)
    edited = item.model_copy(update={"points": 5.0, "text": "Good names."})
    with store.read() as session:
        moved = item_changes.preview_edit(session, assignment_id, edited)
        assert [(one.submission_id in (works[0], works[2]), one.delta) for one in moved] == [(True, 15)] * 2
    edit = {"bulk": "b" * 32, "actor": TEACHER}
    assert item_changes.edit_item(store, assignment_id, edited, seen=1, **edit) == 2
    assert item_changes.edit_item(store, assignment_id, edited, seen=1, **edit) == 0  # sent twice
    with pytest.raises(Conflict):
        item_changes.edit_item(store, assignment_id, edited, seen=1, bulk="c" * 32, actor=TEACHER)
    most = [min(60, round(points + 5, 2)) for points in before]
    assert points_of(server, works) == [most[0], before[1], most[2]]
    intact(store)
    with store.write() as session:  # applied since: it goes back together with the others
        edits.record_change(session, the_grade(session, works[1]), apply, TEACHER)
    assert item_changes.undo_edit(store, assignment_id, item.item, "b" * 32, TEACHER).points == -10
    assert points_of(server, works) == less
    with pytest.raises(CannotUndo):
        item_changes.undo_edit(store, assignment_id, item.item, "b" * 32, TEACHER)
    deleted = item.model_copy(update={"active": False})
    assert item_changes.edit_item(store, assignment_id, deleted, seen=3, bulk="d" * 32, actor=TEACHER) == 3
    assert points_of(server, works) == before
    with store.write() as session:
        assert rubric_items.list_items(session, assignment_id) == ()
        with pytest.raises(NotFound):
            edits.record_change(session, the_grade(session, works[0]), apply, TEACHER)
    item_changes.undo_edit(store, assignment_id, item.item, "d" * 32, TEACHER)
    assert points_of(server, works) == less
    intact(store)


def test_who_left_a_group_stays_out_also_when_graded_again(server: Server) -> None:
    assignment_id, works = a_class(server, "x <- 1", "y <- 1")
    with server.store.write() as session:
        answer_groups.separate(session, works[0], "code", TEACHER)
        answer_groups.separate(session, works[0], "code", TEACHER)
        with pytest.raises(NotFound):
            answer_groups.separate(session, works[0], "gone", TEACHER)
    key, newest = group_of(server, assignment_id, (works[1],))
    alone, _ = group_of(server, assignment_id, (works[0],))
    assert alone == f"alone:{works[0]}"
    made = change_group(
        server.store, assignment_id, RUBRIC.criteria[0], key, works, GroupChange(level=1),
        bulk="e" * 32, seen=newest, actor=TEACHER,
    )  # fmt: skip
    assert made.skipped == (works[0],)
    with server.store.write() as session:
        work, of_it = session.get_one(Submission, works[0]), session.get_one(Assignment, assignment_id)
        again = intake.add_round(session, work, of_it, reason="regrade", priority="batch").id
    grade(server, again)
    assert group_of(server, assignment_id, (works[0],))[0] == alone
    with server.store.write() as session:
        answer_groups.rejoin(session, works[0], "code", TEACHER)
    assert group_of(server, assignment_id, (works[0], works[1]))[0] == key
