"""The bridge to Canvas, by the official client: pulls once, posts once, whatever Canvas does in between."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.commands.canvas import canvas as command
from cli.dev.platforms.canvas_api import ASSIGNMENT, COURSE, LONG_ID, ME, FakeCanvas, canvas_server
from cli.settings import Settings
from grading.config.settings import Server as ServerSettings
from grading.domain.permissions import Actor
from grading.integrations.canvas import client, values
from grading.integrations.canvas.values import CanvasFailed, NotForTheBridge
from grading.store import tables
from grading.store.accounts import users
from grading.store.grades import release as grade_release
from grading.store.integrations.canvas import links, scores
from grading.store.integrations.canvas.tables import (
    CanvasAttempt,
    CanvasLink,
    CanvasScore,
    CanvasScoreAttempt,
)
from tests.integration.webapp import CODE, School, form_token, report
from workers.server.context import Server
from workers.server.delivery.canvas import Bridge

HERE = ["127.0.0.1/32", "localhost"]
ADA, BOB, TEST = 11, LONG_ID, 77
BOSS = Actor(1, True)


@pytest.fixture(scope="module")
def served() -> Iterator[FakeCanvas]:
    with canvas_server() as canvas:
        yield canvas


@dataclass
class Bridged:
    """A school, a Canvas, and what goes between them."""

    school: School
    canvas: FakeCanvas
    bridge: Bridge

    def link(self, assignment: int | None = None) -> int:
        task = self.bridge.talk("cv").task(str(COURSE), str(ASSIGNMENT))
        with self.school.store.write() as session:
            return links.link_assignment(
                session, "cv", task, "BA", assignment or self.school.assignment, "test"
            )

    def rows(self, table: type[Any]) -> list[Any]:
        with self.school.store.read() as session:
            return list(session.query(table))

    def user(self, number: int) -> int:
        with self.school.store.read() as session:
            found = session.query(tables.Identity).filter_by(provider="lms:cv", subject=str(number)).one()
            return found.user_id

    def graded(self, number: int, **changes: Any) -> str:
        """The newest submission of somebody, graded and released."""
        with self.school.store.read() as session:
            own = session.query(tables.Submission).filter_by(student_id=self.user(number))
            submission = own.order_by(tables.Submission.number.desc()).first()
            assert submission is not None
        self.school.grade(submission.id, report(**changes))
        self.release(submission.id)
        return submission.id

    def release(self, submission: str) -> None:
        with self.school.store.write() as session:
            grade_release.release_grade(session, self.round(submission), BOSS)

    def round(self, submission: str) -> str:
        with self.school.store.read() as session:
            return session.query(tables.Round).filter_by(submission_id=submission, current=True).one().id

    def change(self, submission: str, points: float) -> None:
        with self.school.store.write() as session:
            grade = grade_release.lock_current_grade(session, submission)
            assert grade is not None
            grade.final_points = points
            grade_release.add_event(session, grade, "grade.changed", f"changed:{submission}:{points}")


def bridged(school: School, canvas: FakeCanvas) -> Bridged:
    canvas.__dict__.update(
        people=[],
        assignments={},
        submissions={},
        files={},
        asked=[],
        moods=[],
        posts=0,
        per_page=3,
        left="599.7",
    )
    canvas.assign()
    canvas.enrol(ADA, "Ada Student")
    canvas.enrol(BOB, "Bob Student")
    canvas.enrol(12, "Cy Gone", state="completed")
    canvas.enrol(13, "Tess Teacher", "TeacherEnrollment")
    canvas.enrol(14, "Gil Grader", "TaEnrollment")
    canvas.enrol(TEST, "Test Student", "StudentViewEnrollment")
    bridge = Bridge(Server(school.services.config, school.store, school.dispatch), {"cv": canvas.token})  # type: ignore[arg-type]
    bridge.stop.wait = lambda *_: False  # type: ignore[method-assign,assignment]
    return Bridged(school, canvas, bridge)


def configured(canvas: FakeCanvas) -> dict[str, Any]:
    return {"outside_allowed": HERE, "canvases": [{"name": "cv", "url": canvas.base}]}


@pytest.fixture
def here(tmp_path: Path, served: FakeCanvas) -> Iterator[Bridged]:
    school = School(tmp_path, **configured(served))
    yield bridged(school, served)
    school.close()


def test_a_class_comes_over_is_graded_and_sees_it_in_canvas(school_url: str, served: FakeCanvas) -> None:
    """The whole way, on both databases: each thing once, however often it is asked for."""
    school = School(school_url, **configured(served))
    here = bridged(school, served)
    here.link()
    served.submit(ADA, {"1_load.py": CODE, "2_plot.py": CODE}, at="2026-11-20T20:00:00Z")
    served.submit(BOB, {"work.py": CODE}, at="2026-11-20T23:30:00Z", late=True)
    served.submit(TEST, {"work.py": CODE})
    with ThreadPoolExecutor(4) as several:
        pulls = [one.result() for one in [several.submit(here.bridge.pull) for _ in range(4)]]
    assert [(one.people, one.refused, one.errors) for one in pulls] == [(4, 0, ())] * 4
    assert sum(one.submitted for one in pulls) == 2
    assert here.bridge.pull().submitted == 0
    assert len(school.dispatch.announced) == 2
    with school.store.read() as session:
        one = session.query(tables.Submission).filter_by(student_id=here.user(ADA)).one()
        assert (one.source, one.created_at) == ("canvas", datetime(2026, 11, 20, 20, tzinfo=UTC))
        assert {
            file.path for file in session.query(tables.SubmissionFile).filter_by(submission_id=one.id)
        } == {
            "1_load.py",
            "2_plot.py",
        }
        roles = {row.role for row in session.query(tables.Membership).filter_by(user_id=here.user(14))}
    assert roles == {"grader"}
    assert {(row.user_id, row.attempt, row.late) for row in here.rows(CanvasAttempt)} == {
        (here.user(ADA), 1, False),
        (here.user(BOB), 1, True),
    }
    submission = one.id
    school.grade(submission, report())
    here.bridge.reconcile()
    assert (here.bridge.push(), served.posts) == (0, 0)  # nothing before it is released
    here.release(submission)
    assert here.bridge.push() == 1
    score, comments = served.told(ADA)
    assert (score, len(comments)) == (17.0, 1)  # 8.5 of 10 there are 17 of 20
    assert comments[0].startswith("8.5 of 10 points")
    assert comments[0].endswith(f"/submissions/{submission}")
    posts = served.posts
    with school.store.write() as session:
        scores.resend_scores(session, 1, here.user(ADA))
    assert (here.bridge.reconcile(), here.bridge.push(), served.posts) == (0, 0, posts)
    here.change(submission, 9.0)
    assert here.bridge.push() == 1
    assert served.told(ADA)[0] == 18.0
    assert served.told(ADA)[1][0].startswith("9 of 10")
    assert len(served.told(ADA)[1]) == 1
    assert served.submit(ADA, {"work.py": CODE + b"# again\n"}) == 2
    assert here.bridge.pull().submitted == 1
    assert here.bridge.compare() == 0
    with school.store.write() as session:
        grade_release.withdraw_grade(session, here.round(submission), BOSS)
    assert here.bridge.push() == 1
    assert served.told(ADA) == (None, [])  # neither points nor words of what was taken back
    assert served.told(BOB) == (None, [])
    assert {one.action for one in here.rows(tables.Audit)} >= {"canvas.link", "roster.import"}
    school.close()


def test_only_what_changed_is_asked_for_and_all_of_it_once_a_day(here: Bridged) -> None:
    here.link()
    here.canvas.submit(ADA, {"work.py": CODE})
    assert here.bridge.pull().submitted == 1
    here.canvas.asked.clear()
    here.canvas.submit(BOB, {"work.py": CODE}, at="2026-11-20T20:00:00Z")  # whom an earlier pull passed over
    here.canvas.submit(ADA, {"work.py": CODE + b"# again\n"})
    assert here.bridge.pull().submitted == 1
    (listed,) = [path for _, path, _ in here.canvas.asked if path.endswith("/submissions")]
    assert listed == f"/api/v1/courses/{COURSE}/students/submissions"
    with here.school.store.write() as session:
        link = session.query(CanvasLink).one()
        assert link.listed_at is not None
        link.listed_at -= timedelta(days=1)
    assert here.bridge.pull().submitted == 1


def test_a_pull_that_breaks_is_done_again_from_its_beginning(
    here: Bridged, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.link()
    here.canvas.submit(ADA, {"work.py": CODE}, at="2026-11-20T20:00:00Z")

    def broken(*_: Any) -> None:
        raise RuntimeError("a fault nobody foresaw")

    with monkeypatch.context() as patch, pytest.raises(RuntimeError):
        patch.setattr(links, "import_attempt", broken)
        here.bridge.pull()
    assert [row.pulled_at for row in here.rows(CanvasLink)] == [None]
    assert here.bridge.pull().submitted == 1


def test_a_pass_leaves_others_some_of_what_a_token_may_use(served: FakeCanvas) -> None:
    """Canvas gives 10 units a second back (app/middleware/request_throttle.rb)."""
    waits: list[float] = []
    talk = client.Talk(
        served.base, served.token, ServerSettings(outside_allowed=tuple(HERE)).allowed, waits.append
    )
    served.left = "599.7"
    talk.course_title(str(COURSE))
    served.left = "100.0"
    talk.course_title(str(COURSE))
    served.left = "599.7"
    assert waits == [5.0]


def test_what_passes_is_asked_again(here: Bridged) -> None:
    here.link()
    for mood in ("500", "throttled", "429"):
        here.canvas.submit(ADA, {"work.py": CODE})
        here.canvas.moods[:] = [mood] * 3
        assert here.bridge.pull().submitted == 1


def test_what_stays_is_said_and_pulled_later(here: Bridged) -> None:
    number = here.link()
    for mood, words in (("throttled", "rate limit"), ("html", "cannot be read")):
        here.canvas.submit(ADA, {"work.py": CODE})
        here.canvas.moods[:] = [mood] * 4
        pulled = here.bridge.pull()
        assert pulled.submitted == 0
        assert words in pulled.errors[0]
        with here.school.store.read() as session:
            (shown,) = links.list_links(session)
        assert shown.link.id == number
        assert words in shown.errors[0]
        here.canvas.moods.clear()
        assert here.bridge.pull().submitted == 1
        with here.school.store.read() as session:
            assert links.list_links(session)[0].errors == ()


def test_it_goes_by_itself(here: Bridged, monkeypatch: pytest.MonkeyPatch) -> None:
    here.link()
    here.canvas.submit(ADA, {"work.py": CODE})
    came = threading.Event()
    monkeypatch.setattr(here.school.dispatch, "announce", lambda _: came.set())
    bridge = Bridge(here.bridge.server, here.bridge.tokens)
    threads = bridge.start()
    try:
        assert came.wait(60)
    finally:
        bridge.stop.set()
        for thread in threads:
            thread.join(60)
    assert len(threads) == 2
    assert here.school.count(tables.Submission) == 1
    config = here.school.services.config.model_copy(update={"server": ServerSettings()})
    assert Bridge(replace(here.bridge.server, config=config), {}).start() == []


def test_a_token_that_is_refused_loses_no_score(here: Bridged) -> None:
    here.link()
    here.canvas.submit(ADA, {"work.py": CODE})
    here.bridge.pull()
    here.graded(ADA)
    bad = Bridge(here.bridge.server, {"cv": "7~leaked"})
    assert "refuses the token" in bad.pull().errors[0]
    assert bad.push() == 0
    assert "no token for 'cv'" in Bridge(here.bridge.server, {}).pull().errors[0]
    here.school.store.clock_offset_s += 6
    assert here.bridge.push() == 1
    assert here.canvas.told(ADA)[0] == 17.0
    tries = here.rows(CanvasScoreAttempt)
    assert [(one.posted, bool(one.error)) for one in tries] == [(False, True), (True, False)]
    assert "leaked" not in repr([vars(one) for one in tries])


def test_an_answer_that_is_lost_makes_no_second_comment(here: Bridged) -> None:
    here.link()
    here.canvas.submit(ADA, {"work.py": CODE})
    here.bridge.pull()
    here.graded(ADA)
    here.canvas.moods[:] = ["deaf"]
    assert here.bridge.push() == 0
    posts = here.canvas.posts
    assert posts == 2
    here.school.store.clock_offset_s += 6
    assert here.bridge.push() == 0  # it is there: nothing to post
    assert here.canvas.posts == posts
    assert len(here.canvas.told(ADA)[1]) == 1
    assert here.rows(CanvasScore)[0].sent_at is not None


def test_what_teachers_write_in_canvas_stays(here: Bridged) -> None:
    here.link()
    here.canvas.submit(ADA, {"work.py": CODE})
    here.bridge.pull()
    row = here.canvas.of(ADA)
    here.canvas.comment(row, "Well done. See http://localhost:8080/submissions/x", 13)
    here.canvas.comment(row, "A note of whose token it is", ME)
    submission = here.graded(ADA)
    here.bridge.push()
    here.change(submission, 5.0)
    here.bridge.push()
    comments = here.canvas.told(ADA)[1]
    assert len(comments) == 3
    assert comments[1] == "A note of whose token it is"
    with here.school.store.write() as session:
        grade_release.withdraw_grade(session, here.round(submission), BOSS)
    here.bridge.push()
    assert len(here.canvas.told(ADA)[1]) == 2


def test_a_planted_difference_is_found_and_mended_when_asked(here: Bridged) -> None:
    here.link()
    here.canvas.submit(ADA, {"work.py": CODE})
    here.bridge.pull()
    here.graded(ADA)
    here.bridge.push()
    assert here.bridge.compare() == 0
    here.canvas.of(ADA)["entered_score"] = 3.0
    assert here.bridge.compare() == 1
    (row,) = here.rows(CanvasScore)
    assert (row.theirs, row.points) == (3.0, 17.0)
    assert here.bridge.push() == 0
    assert here.canvas.told(ADA)[0] == 3.0  # nothing is overwritten by itself
    browser, page = here.school.client("teacher"), f"/courses/{here.school.course}/platform"
    assert "17 points here, 3 in the learning platform" in browser.get(page).get_data(as_text=True)
    links = f"/api/v1/courses/{here.school.course}/platform-links"
    (link,) = browser.get(links, headers=here.school.token("teacher")).get_json()["items"]
    assert (link["platform"], link["sent"], link["compared_at"] is None) == ("canvas", 1, False)
    chosen = {"csrf_token": form_token(browser, page), "canvas": f"1:{here.user(ADA)}"}
    assert browser.post(f"{page}/again", data=chosen).status_code == 303
    assert here.bridge.push() == 1
    assert here.canvas.told(ADA)[0] == 17.0


def test_files_that_cannot_be_taken_are_remembered_and_others_come(here: Bridged) -> None:
    here.link()
    here.canvas.submit(ADA, {"virus.exe": b"MZ"})
    here.canvas.submit(BOB, {"work.py": CODE})
    here.canvas.moods[:] = []
    pulled = here.bridge.pull()
    assert (pulled.submitted, pulled.refused) == (1, 1)
    assert here.bridge.pull().refused == 0
    refused = [one for one in here.rows(CanvasAttempt) if one.submission_id is None]
    assert len(refused) == 1
    assert "cannot be graded" in refused[0].error
    page = here.school.client("teacher").get(f"/courses/{here.school.course}/platform")
    assert "Ada Student, Homework hw1, attempt 1" in page.get_data(as_text=True)
    here.canvas.submit(ADA, {"work.py": CODE})
    here.canvas.moods[:] = ["file 503"]
    assert here.bridge.pull().submitted == 0
    assert here.bridge.pull().submitted == 1


def test_a_file_leads_nowhere_that_is_forbidden(here: Bridged) -> None:
    here.link()
    here.canvas.submit(ADA, {"work.py": CODE})
    here.canvas.moods[:] = ["file away"]
    assert here.bridge.pull().refused == 1
    assert "10.1.2.3" in here.rows(CanvasAttempt)[0].error


def test_the_token_goes_to_no_other_address(here: Bridged) -> None:
    here.link()
    here.canvas.per_page = 1
    real, here.canvas.base = here.canvas.base, here.canvas.files_at
    try:
        pulled = here.bridge.pull()
    finally:
        here.canvas.base = real
    assert "cannot be read" in pulled.errors[0]
    assert {host for _, path, host in here.canvas.asked if "/api/" in path} == {urlsplit(real).netloc}
    outside = client.Outside(real, here.school.services.config.server.allowed)
    with pytest.raises(CanvasFailed, match="does not send the token there"):
        client.session(outside).get(f"{here.canvas.files_at}/api/v1/users/self")


def test_what_was_removed_here_is_not_pulled_again(here: Bridged) -> None:
    from grading.store.privacy.deletion import delete_submissions

    here.link()
    here.canvas.submit(ADA, {"work.py": CODE})
    here.bridge.pull()
    with here.school.store.write() as session:
        delete_submissions(session, [one.id for one in session.query(tables.Submission)])
    assert here.bridge.pull().submitted == 0


def test_a_disabled_account_submits_nothing(here: Bridged) -> None:
    here.link()
    here.bridge.pull()
    here.canvas.submit(ADA, {"work.py": CODE})
    with here.school.store.write() as session:
        found = users.find_user(session, "lms:cv", str(ADA))
        assert found is not None
        found.disabled = True
    pulled = here.bridge.pull()
    assert (pulled.submitted, pulled.errors) == (0, ())


def test_what_the_bridge_cannot_do_is_not_linked(here: Bridged) -> None:
    for words, changes in {
        "points": {"grading_type": "pass_fail"},
        "no files": {"submission_types": ["online_text_entry"]},
        "group": {"group_category_id": 3},
        "anonymously": {"anonymous_grading": True},
        "moderation": {"moderated_grading": True},
    }.items():
        here.canvas.assign(ASSIGNMENT, **changes)
        with pytest.raises(NotForTheBridge, match=words):
            here.link()


def test_by_the_command_line(here: Bridged, monkeypatch: pytest.MonkeyPatch, redis_url: str) -> None:
    monkeypatch.setenv("GRADER_CANVAS_CV_TOKEN", here.canvas.token)
    settings = Settings(Path("none.toml"))
    config = here.school.services.config
    settings.__dict__["config"] = config.model_copy(
        update={
            "database": config.database.model_copy(update={"url": here.school.store.url}),
            "redis": config.redis.model_copy(update={"url": redis_url}),
        }
    )
    monkeypatch.setattr("grading.store.schema.require_usable", lambda _: None)

    def run(*arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(command, arguments, obj=settings)
        return done.exit_code, done.output + str(done.exception or "")

    page = f"{here.canvas.base}/courses/{COURSE}/assignments/{ASSIGNMENT}"
    assert f"user {ME}" in run("check")[1]
    assert f"{page}  Homework 1: can be linked" in run("assignments", "cv", str(COURSE))[1]
    assert "Did you mean 'ba/hw1'?" in run("link", page, "ba/hw-1")[1]
    assert "Link 1:" in run("link", page, "ba/hw1")[1]
    assert "address" in run("link", "https://elsewhere.example/courses/1/assignments/2", "ba/hw1")[1]
    here.canvas.submit(ADA, {"work.py": CODE})
    code, said = run("pull")
    assert (code, "1 new submissions" in said) == (0, True)
    here.graded(ADA)
    assert "1 score sent" in run("push")[1]
    assert "0 scores sent" in run("sync")[1]
    here.canvas.of(ADA)["entered_score"] = 1.0
    assert run("compare")[0] == 1
    assert "1 differ" in run("list")[1]
    assert "1 score sent" in run("push", "--again")[1]
    assert run("compare")[0] == 0
    assert here.canvas.token not in run("list")[1]
    assert "Removed link 1" in run("unlink", "1")[1]
    assert here.bridge.pull().people == 0
    run("link", page, "ba/hw1")
    assert here.bridge.pull().submitted == 0  # what was pulled stays known


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=6,
)
FIELDS = (
    "id", "user_id", "attempt", "submitted_at", "workflow_state", "submission_type", "attachments",
    "submission_history", "submission_comments", "entered_score", "enrollments", "name", "email",
    "submission_types", "points_possible",
)  # fmt: skip


@settings(max_examples=50)
@given(said=st.dictionaries(st.sampled_from(FIELDS), anything))
def test_whatever_canvas_says_is_read_or_left(said: dict[str, Any]) -> None:
    values.attempts(said)
    values.person(said)
    values.there(said, "1", "x")
    try:
        values.task(said, "1")
    except CanvasFailed:
        assert values.number_of(said.get("id")) is None


def test_points_are_told_in_the_measure_of_canvas() -> None:
    assert values.share(8.5, 10, 20) == 17.0
    assert values.share(1, 3, 10) == 3.33
    assert values.share(None, 10, 20) is None
    assert values.share(7, 10, None) == 7
    assert values.share(7, 10, 0) == 7
    assert [values.grade(one) for one in (None, 17.0, 3.33, 12345.67, 0.0)] == [
        "",
        "17",
        "3.33",
        "12345.67",
        "0",
    ]
    assert values.same_points(3.333, 3.33, 10)
    assert not values.same_points(None, 0.0, 10)
