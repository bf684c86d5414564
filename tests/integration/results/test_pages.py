"""The result as students and staff see it: sums, people's changes, places, pictures, history, requests."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.exc import OperationalError

from app.reports.images import looked_into, pictures
from app.reports.score_breakdown import points_sum
from app.results import views
from app.web import grade_view_audit
from grading.domain.errors import Conflict
from grading.domain.lateness import Lateness
from grading.store import tables
from grading.store.database import now
from grading.store.grades.final_score import update_final_score
from grading.store.review import regrade_requests
from grading.store.submissions.intake import add_round
from grading.store.views.grade_history import ScoreTerms
from grading.store.views.submission import GradeView
from tests.integration.results.result_samples import (
    NOTEBOOK,
    change,
    code,
    display,
    graded,
    notebook,
    picture,
    placed,
    png,
    text,
)
from tests.integration.webapp import School, form_token, limit, report


@pytest.fixture
def school(tmp_path: Path) -> Iterator[School]:
    made = School(tmp_path)
    yield made
    made.close()


@pytest.fixture
def either(school_url: str) -> Iterator[School]:
    """On SQLite and on PostgreSQL."""
    made = School(school_url)
    yield made
    made.close()


def shown(school: School, submission: str, who: str = "anna") -> str:
    answer = school.client(who).get(f"/submissions/{submission}")
    assert answer.status_code == 200
    page = answer.get_data(as_text=True)
    answer.close()
    return page


def plain(page: str) -> str:
    return " ".join(re.sub("<[^>]+>", " ", page).split())


def test_making_pdfs_is_bounded_for_one_person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, views.pdf, "2 per minute")
    made = School(tmp_path)
    anna, ben = made.client("anna"), made.client("ben")
    codes = [anna.get(f"/submissions/{number}/result.pdf").status_code for number in range(3)]
    assert codes == [404, 404, 429]
    assert ben.get("/submissions/1/result.pdf").status_code == 404
    made.close()


# --- words --------------------------------------------------------------------------------------------


def test_score_release_and_what_to_do_first_come_before_all_else(school: School) -> None:
    submission = graded(school)
    page = shown(school, submission)
    order = [
        page.index(one)
        for one in ('id="points"', ">released<", 'id="first"', 'id="feedback"', 'id="criteria"')
    ]
    assert order == sorted(order)
    first = plain(page[order[2] : order[3]])
    assert "Plot the sales by month." in first
    assert "Thinks about it : 1.5 of 6 points missing" in first
    assert "Loads the data" not in first  # nothing is missing there
    assert page.count("Plot the sales by month.") == 1
    passed, missing = re.findall(r'<details class="panel criterion" id="criterion-\d"( open)?>', page)
    assert (passed, missing) == ("", " open")
    assert "1 of 2 with full points" in plain(page)
    staff = shown(school, submission, "teacher")
    assert 'id="first"' not in staff
    assert "Your next step" in staff


def test_machines_are_named_to_staff_only(school: School) -> None:
    submission = graded(school)
    anna, teacher = school.client("anna"), school.client("teacher")
    for part in ("", "/result", "/status.json"):
        url = f"/submissions/{submission}{part}"
        assert b"dgx-spark-1" not in anna.get(url).data
        assert (b"mac-studio-1" in teacher.get(url).data) is (part != "/status.json")
    url = f"/api/v1/submissions/{submission}"
    answers = [school.client().get(url, headers=school.token(name)) for name in ("anna", "teacher")]
    own, theirs = (answer.get_json()["report"]["stages"] for answer in answers)
    assert [one["machine"] for one in own.values()] == ["", ""]
    assert [one["machine"] for one in theirs.values()] == ["dgx-spark-1", "mac-studio-1"]


def test_submitting_again_keeps_the_last_released_score(either: School) -> None:
    school = either
    graded(school)
    again = school.submit("anna")
    anna = school.client("anna")
    pages = ("/", f"/courses/{school.course}", f"/courses/{school.course}/my-grades", f"/submissions/{again}")
    for url in pages:
        words = plain(anna.get(url).get_data(as_text=True))
        assert "Last released score: 8.5 of 10 points ( Submission 1 )" in words, url
        assert "0 of 0" not in words
    school.grade(again, report(points=9, points_so_far=9), released=True)
    for url in pages:
        assert "Last released score" not in anna.get(url).get_data(as_text=True), url


def grade(
    points: float | None, final: float | None, adjustment: float = 0.0, credit: float = 1.0
) -> GradeView:
    values: dict[str, Any] = {"held": False, "released_at": None, "reviewed_at": None}
    return GradeView(
        points=points, points_so_far=points or 4, max_points=30, adjustment=adjustment, credit=credit,
        final_points=final, report=report(), original=report(), **values,
    )  # fmt: skip


ONE, TWO = "Submitted one day late.", "Submitted 2 days late."


@pytest.mark.parametrize(
    ("of", "days", "steps", "late"),
    [
        (grade(27, 27), 0, "", ""),
        (grade(27, 24.3, credit=0.9), 1, "27 of 30, 10 % off for one day late: 24.3", ONE),
        (grade(27, 21.6, credit=0.8), 2, "27 of 30, 20 % off for 2 days late: 21.6", TWO),
        (grade(27, 29, adjustment=2), 0, "27 of 30, 2 added manually: 29", ""),
        (
            grade(27, 22.95, adjustment=-1.5, credit=0.9), 1,
            "27 of 30, 1.5 deducted manually, 10 % off for one day late: 22.95", ONE,
        ),
        (grade(27, 27), 1, "", "Submitted one day late. That takes no points off."),
        (grade(None, None, credit=0.9), 1, "", ONE),
    ],
)  # fmt: skip
def test_how_points_add_up_is_one_plain_sentence(of: GradeView, days: int, steps: str, late: str) -> None:
    terms = ScoreTerms(lateness=Lateness(days=days), due_at=None, extended=False, counts="latest", levels={})
    found = points_sum(of, terms)
    assert (found.steps, found.late) == (steps, late)


def test_the_sum_and_which_submission_counts_stand_on_the_page(school: School) -> None:
    first, second = graded(school), graded(school)
    with school.store.write() as session:
        assignment = session.get_one(tables.Assignment, school.assignment)
        assignment.due_at, assignment.counts = now(session) - timedelta(hours=30), "best"
        assignment.late = {"per_day": 0.1}
        for one in session.query(tables.Grade).all():
            update_final_score(session, one)
    change(school, first, kind="points", target="think", points=6, reason="Well argued.")
    page = plain(shown(school, first))
    assert "10 of 10, 20 % off for 2 days late: 8" in page
    assert "Of 2 submissions, the best one counts: this one." in page
    assert "the best one counts: submission 1." in plain(shown(school, second))


def test_levels_are_told_in_the_words_of_the_rubric(school: School) -> None:
    page = plain(shown(school, graded(school)))
    assert "Level: complete and convincing" in page
    assert "Level: good" in page


# --- people -------------------------------------------------------------------------------------------


def test_places_of_comments_are_in_the_language_of_the_reader(school: School) -> None:
    submission = graded(school)
    change(school, submission, kind="add", text="See page 3.", document=NOTEBOOK, cell=3, line=1)
    answer = school.client("anna").get(f"/submissions/{submission}", headers={"Accept-Language": "de"})
    words = plain(answer.get_data(as_text=True))
    assert f"{NOTEBOOK}, Zelle 3, Zeile 1" in words
    assert "Voriger Kommentar" in words


def test_what_a_person_changed_is_marked_with_what_stood_there_before(school: School) -> None:
    submission = graded(school)
    change(school, submission, kind="points", target="think", points=6, reason="Well argued.")
    change(school, submission, kind="hide", target="finding:0")
    change(school, submission, kind="remark", target="finding:1", text="You mean `sum`.")
    change(school, submission, kind="text", target="feedback.achieved", text="You did **well**.")
    change(school, submission, kind="add", text="See page 3.", document=NOTEBOOK, cell=3, line=1)
    page = shown(school, submission)
    words = plain(page)
    assert page.count("changed manually") == 3
    assert "Before: 4.5 of 6 points" in words
    assert "You mean sum . changed manually" in words
    assert "Before: It fails here." in words
    assert "Reads the file" not in words  # hidden
    assert "You did well ." in words
    assert "Comment by the course staff: Teacher See page 3." in words
    assert "10 of 10 points" in words
    assert "points given manually" in words
    assert "Manual changes" not in words
    staff = plain(shown(school, submission, "grader"))
    assert "Teacher : “Thinks about it”: 4.5 → 6 points Why: Well argued." in staff
    assert "a comment is not shown" in staff


def test_a_change_that_was_taken_back_says_so_to_staff(school: School) -> None:
    submission = graded(school)
    number = change(school, submission, kind="points", target="think", points=6, reason="Well argued.")
    with school.store.write() as session:
        row = session.get_one(tables.Change, number)
        row.undone_at, row.undone_by = now(session), school.users["grader"]
        update_final_score(session, session.query(tables.Grade).one())
    assert "Undone by Grader," in plain(shown(school, submission, "teacher"))
    assert "changed manually" not in shown(school, submission)


def test_quotes_and_comments_lead_to_their_places(school: School) -> None:
    page = shown(school, graded(school))
    (target,) = re.findall(r'<a class="place" href="#([^"]+)">work.ipynb, cell 2, line 2</a>', page)
    assert page.count(f'id="{target}"') == 1
    anchors = re.findall(r'id="(comment-\d+)" data-comment', page)
    links = re.findall(r'href="#(comment-\d+)" data-to-comment', page)
    assert len(anchors) == len(set(anchors)) == 4
    assert sorted(links) == sorted(anchors)
    assert "4 comments" in plain(page)


def test_the_gradings_of_a_submission_are_its_history(school: School) -> None:
    submission = graded(school)
    with school.store.write() as session:
        row = session.get_one(tables.Submission, submission)
        add_round(session, row, row.assignment, reason="regrade", priority="interactive")
    school.grade(submission, report(points=9, points_so_far=9))
    page = plain(shown(school, submission))
    assert "Grading 2 (current) , after a regrade request" in page
    assert "Grading 1, first" in page
    assert "8.5 of 10 points" in page
    assert "9 of 10 points" not in page  # not released
    assert "9 of 10 points" in plain(shown(school, submission, "teacher"))


def test_the_page_asks_as_often_whatever_hangs_on_it(school: School) -> None:
    submission = graded(school)
    statements: list[str] = []
    event.listen(school.store.engine, "before_cursor_execute", lambda *a: statements.append(a[2]))

    def count() -> int:
        shown(school, submission)
        statements.clear()
        shown(school, submission)
        return len(statements)

    hang(school, submission, 1)
    few = count()
    hang(school, submission, 8)
    assert count() == few


def hang(school: School, submission: str, times: int) -> None:
    """Changes by people, and requests for a regrade."""
    for number in range(times):
        change(school, submission, kind="add", text=f"Comment {number}")
        change(school, submission, kind="points", target="think", points=number / 2, reason="Again.")
    with school.store.write() as session:
        for _ in range(times):
            current = session.query(tables.Round).filter_by(submission_id=submission, current=True).one()
            asked = tables.RegradeRequest(
                submission_id=submission, round_id=current.id, student_id=school.users["anna"],
                course_id=school.course, reason="Why?", state="declined", answer="So.",
                created_at=now(session),
            )  # fmt: skip
            session.add(asked)


# --- pictures -----------------------------------------------------------------------------------------


def test_pictures_are_shown_without_anything_else_of_their_file(school: School) -> None:
    data = notebook(text("x"), code("plot()", picture(png(30, 20, extra=b"secret of the camera"))))
    submission = school.submit("anna", data=data, name=NOTEBOOK)
    page = shown(school, submission)
    (url,) = re.findall(r'<img class="picture" loading="eager" src="([^"]+)"', page)
    answer = school.client("anna").get(url)
    assert answer.status_code == 200
    assert answer.mimetype == "image/png"
    assert answer.data == png(30, 20)
    assert answer.headers["Content-Security-Policy"] == "default-src 'none'; sandbox"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert school.client("teacher").get(url).status_code == 200
    review = school.client("teacher").get(f"/submissions/{submission}/review").get_data(as_text=True)
    assert f'<img class="picture" loading="eager" src="{url}"' in review
    assert school.client("ben").get(url).status_code == 404
    assert school.client("stranger").get(url).status_code == 404
    for other in ("0/2/1", "0/1/0", "1/2/0", "0/999/0"):
        assert school.client("anna").get(f"/submissions/{submission}/pictures/{other}").status_code == 404


def test_what_only_says_it_is_a_picture_is_not_shown(school: School) -> None:
    whole = png()
    evil = b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>"
    huge = png(1, 1).replace(b"\0\0\0\1\0\0\0\1", b"\0\0\xff\xff\0\0\xff\xff")
    for bad in (
        b"",
        evil,
        b"GIF89a",
        whole[:-1],
        whole[:-20],
        whole.replace(b"IDAT", b"IDAX"),
        huge,
        whole[:8] + evil,
    ):
        assert looked_into(bad) is None
        assert pictures(notebook(code("x", picture(bad)))) == {}
    assert looked_into(whole) is not None
    assert looked_into(whole + evil).data == whole  # type: ignore[union-attr]
    for broken in (b"", b"[]", b'{"cells": [1, {"outputs": [1, {"data": {"image/png": [1]}}]}]}', b"\xff"):
        assert pictures(broken) == {}
    data = notebook(text("x"), code("x", display(image_svg="<svg onload=alert(1)>"), picture(evil)))
    page = shown(school, school.submit("anna", data=data, name=NOTEBOOK))
    assert "<img" not in page
    assert "2 images in an unsupported format" in page


def test_jpegs_lose_what_the_camera_said() -> None:
    def part(marker: int, body: bytes) -> bytes:
        return bytes([0xFF, marker]) + (len(body) + 2).to_bytes(2) + body

    frame = bytes([8]) + (20).to_bytes(2) + (30).to_bytes(2) + b"\1\1\x11\0"
    ends = part(0xC0, frame), part(0xDA, b"\1\1\0\0?\0") + b"\x12\x34\xff\xd9"
    place = part(0xE1, b"Exif\0\0where it was taken")
    found = looked_into(b"\xff\xd8" + place + ends[0] + ends[1])
    assert found is not None
    assert (found.kind, found.width, found.height) == ("jpeg", 30, 20)
    assert b"taken" not in found.data
    assert looked_into(b"\xff\xd8" + place + ends[1]) is None  # no size
    assert looked_into((b"\xff\xd8" + ends[0] + ends[1])[:-2]) is None


# --- who looked ---------------------------------------------------------------------------------------


def looks(school: School) -> list[tuple[str, str]]:
    with school.store.read() as session:
        rows = session.query(tables.Audit).filter_by(action="grade.view").order_by(tables.Audit.id)
        return [(row.actor, row.object) for row in rows]


def test_every_look_at_a_grade_is_written_down_once_in_ten_minutes(either: School) -> None:
    school = either
    submission, waits = graded(school), graded(school, "ben", released=False)
    anna, teacher = (f"user:{school.users[name]}" for name in ("anna", "teacher"))
    for _ in range(3):
        shown(school, submission)
        shown(school, submission, "teacher")
        shown(school, waits, "ben")  # sees no grade
    assert looks(school) == [(anna, f"submission:{submission}"), (teacher, f"submission:{submission}")]
    school.app.extensions["grader-views"] = grade_view_audit.GradeViews(school.store)  # another process
    shown(school, submission)
    assert len(looks(school)) == 2
    school.store.clock_offset_s = grade_view_audit.EVERY_S + 1
    school.app.extensions["grader-views"] = grade_view_audit.GradeViews(school.store)
    shown(school, submission)
    assert len(looks(school)) == 3


def test_a_database_that_takes_no_writes_for_a_moment_loses_no_look(
    school: School, monkeypatch: pytest.MonkeyPatch
) -> None:
    submission = graded(school)

    def refuse(*_: object) -> None:
        raise OperationalError("insert", {}, Exception("cannot execute INSERT in a read-only transaction"))

    with monkeypatch.context() as patched:
        patched.setattr("grading.store.audit.write_audit", refuse)
        assert "Feedback for you" in shown(school, submission)
    assert looks(school) == []
    shown(school, submission, "teacher")
    assert [actor for actor, _ in looks(school)] == [f"user:{school.users[n]}" for n in ("anna", "teacher")]


# --- asking for a regrade -----------------------------------------------------------------------------


def post(school: School, who: str, url: str, **form: str) -> Any:
    client = school.client(who)
    return client.post(url, data={"csrf_token": form_token(client), **form}, follow_redirects=True)


def ask(school: School, submission: str, who: str = "anna", criterion: str = "think") -> Any:
    reason = "My reflection says <b>why</b> the sales fell."
    return post(school, who, f"/submissions/{submission}/regrades", criterion=criterion, reason=reason)


def requests(school: School) -> list[tables.RegradeRequest]:
    with school.store.read() as session:
        return session.query(tables.RegradeRequest).order_by(tables.RegradeRequest.id).all()


def test_a_student_asks_withdraws_and_asks_again(either: School) -> None:
    school = either
    submission = graded(school)
    assert "Your request was sent." in ask(school, submission).get_data(as_text=True)
    again = ask(school, submission).get_data(as_text=True)
    assert "You have already sent this request." in again
    assert "why&lt;/b&gt;" in again
    assert [(one.criterion, one.state) for one in requests(school)] == [("think", "open")]
    ask(school, submission, criterion="")
    assert "This criterion is not part of the grade." in ask(school, submission, criterion="x").get_data(
        as_text=True
    )
    short = post(school, "anna", f"/submissions/{submission}/regrades", criterion="load", reason="no")
    assert "Not sent" in short.get_data(as_text=True)
    first, whole = requests(school)
    assert (whole.criterion, whole.state) == ("", "open")
    assert post(school, "ben", f"/regrades/{first.id}/withdraw").status_code == 404
    assert post(school, "teacher", f"/regrades/{first.id}/withdraw").status_code == 404
    done = post(school, "anna", f"/regrades/{first.id}/withdraw").get_data(as_text=True)
    assert "Your request was withdrawn." in done
    undo = re.search(r'action="(/regrades/\d+/reopen)".*?name="at" value="([^"]+)"', done, re.DOTALL)
    assert undo is not None
    post(school, "anna", undo[1], at=undo[2])
    assert [one.state for one in requests(school)] == ["open", "open"]
    post(school, "anna", f"/regrades/{first.id}/withdraw")
    post(school, "anna", undo[1], at=undo[2])  # it was another time
    assert [one.state for one in requests(school)] == ["withdrawn", "open"]
    assert "Your request was sent." in ask(school, submission).get_data(as_text=True)
    assert [one.state for one in requests(school)] == ["withdrawn", "open", "open"]
    assert "already answered or withdrawn" in post(school, "anna", f"/regrades/{first.id}/withdraw").get_data(
        as_text=True
    )


def test_nobody_asks_before_the_release_or_for_others(school: School) -> None:
    submission = graded(school, released=False)
    assert ask(school, submission).status_code == 403
    assert ask(school, submission, "ben").status_code == 404
    assert ask(school, submission, "teacher").status_code == 403
    assert requests(school) == []
    assert "Request a regrade" not in shown(school, submission)


def test_two_at_once_ask_once(either: School) -> None:
    school = either
    submission = graded(school)
    actor = school.client("anna")  # its session is not needed, only the person
    assert actor is not None
    from grading.domain.permissions import Actor

    anna, refused, gate = Actor(school.users["anna"]), [], threading.Barrier(4)

    def one() -> None:
        gate.wait(30)
        try:
            with school.store.write() as session:
                regrade_requests.create_request(session, anna, submission, "think", "Please look again.")
        except Conflict as error:
            refused.append(error)

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (len(requests(school)), len(refused)) == (1, 3)


def test_staff_see_requests_of_their_courses_open_ones_first(school: School) -> None:
    for who in ("anna", "ben"):
        ask(school, graded(school, who), who)
    first, second = requests(school)
    post(school, "teacher", f"/regrades/{first.id}", verdict="declined", words="It names no reason.")
    page = school.client("grader").get("/regrades").get_data(as_text=True)
    assert page.index(f"/regrades/{second.id}") < page.index(f"/regrades/{first.id}")
    assert re.search(r'Regrade requests <span class="badge[^>]*>1<span', page)
    assert f"/regrades/{second.id}" not in school.client("stranger").get("/regrades").get_data(as_text=True)
    assert school.client("anna").get("/regrades").status_code == 403
    for who, status in (("stranger", 404), ("anna", 404), ("grader", 200)):
        assert school.client(who).get(f"/regrades/{second.id}").status_code == status
    assert school.client("teacher").get("/regrades?course=x&page=99999").status_code == 200
    answer = post(school, "teacher", f"/regrades/{first.id}", verdict="points", points="6", words="Yes.")
    assert answer.status_code == 409
    told = plain(shown(school, first.submission_id))
    assert "declined Thinks about it" in told
    assert "Your regrade request was answered. declined View response" in told
    assert "It names no reason." in told


def test_other_points_are_an_answer(either: School) -> None:
    school = either
    submission = graded(school)
    ask(school, submission)
    ask(school, submission, criterion="")
    one, whole = requests(school)
    for bad in ("", "x", "nan", "6.5", "-1", "1e999"):
        answer = post(
            school, "grader", f"/regrades/{one.id}", verdict="points", points=bad, words="You are right."
        )
        assert answer.status_code == 422
        assert "Enter points from 0 to 6." in answer.get_data(as_text=True)
    assert post(school, "grader", f"/regrades/{one.id}", verdict="points", points="6").status_code == 422
    assert post(school, "grader", f"/regrades/{one.id}", verdict="x", words="Hm.").status_code == 422
    post(school, "grader", f"/regrades/{one.id}", verdict="points", points="5,5", words="You are right.")
    post(school, "teacher", f"/regrades/{whole.id}", verdict="points", points="-0.5", words="But too long.")
    page = plain(shown(school, submission))
    assert "9.5 of 10, 0.5 deducted manually: 9" in page
    assert "accepted Thinks about it" in page
    assert "You are right." in page
    with school.store.read() as session:
        actions = [row.action for row in session.query(tables.Audit).order_by(tables.Audit.id)]
        assert actions.count("regrade.ask") == actions.count("regrade.answer") == 2
        assert actions.count("grade.change") == 2


def test_an_answer_is_undone_until_its_points_change_again(either: School) -> None:
    school = either
    submission = graded(school)
    ask(school, submission)
    (one,) = requests(school)
    url = f"/regrades/{one.id}"

    def answered(who: str, **form: str) -> str:
        """Answer; the moment in the message's Undo."""
        page = post(school, who, url, words="You are right.", **form).get_data(as_text=True)
        found = re.search(r'name="at" value="([^"]+)"', page)
        assert found is not None
        return found[1]

    at = answered("grader", verdict="points", points="5.5")
    assert "was changed in the meantime" in plain(
        post(school, "teacher", f"{url}/undo", at=at).get_data(True)
    )
    assert "The request is open again." in plain(post(school, "grader", f"{url}/undo", at=at).get_data(True))
    page = plain(shown(school, submission))
    assert "You are right." not in page
    assert "8.5 of 10" in page
    assert requests(school)[0].state == "open"
    at = answered("grader", verdict="points", points="5")
    change(school, submission, kind="points", target="think", points=4.0)
    post(school, "grader", f"{url}/undo", at=at)
    assert requests(school)[0].state == "accepted"


def test_grading_again_is_an_answer_for_those_who_may(school: School) -> None:
    submission = graded(school)
    ask(school, submission)
    (one,) = requests(school)
    assert post(school, "grader", f"/regrades/{one.id}", verdict="again", words="Again.").status_code == 403
    assert requests(school)[0].state == "open"
    post(school, "teacher", f"/regrades/{one.id}", verdict="again", words="The machines look again.")
    with school.store.read() as session:
        current = session.query(tables.Round).filter_by(submission_id=submission, current=True).one()
        assert (current.reason, current.number) == ("regrade", 2)
        assert school.dispatch.announced[-1] == current.id
    assert "accepted" in plain(shown(school, submission))
    # a request about the old grading, while there is no grade to change
    with school.store.write() as session:
        row = session.get_one(tables.RegradeRequest, one.id)
        row.state, row.answered_at = "open", None
    for verdict in ("points", "again"):
        answer = post(school, "teacher", f"/regrades/{one.id}", verdict=verdict, points="1", words="Hm.")
        assert answer.status_code in (409, 422)
    assert requests(school)[0].state == "open"


def test_a_release_that_was_taken_back_ends_asking(school: School) -> None:
    submission = graded(school, made=placed())
    with school.store.write() as session:
        session.query(tables.Grade).one().released_at = None
    assert ask(school, submission).status_code == 403


# --- what is kept -------------------------------------------------------------------------------------


def test_what_is_kept_is_never_out_of_date(school: School) -> None:
    submission = graded(school)
    assert plain(shown(school, submission)) == plain(shown(school, submission))
    change(school, submission, kind="text", target="feedback.achieved", text="Said by a person.")
    assert "Said by a person." in shown(school, submission)
    number = change(school, submission, kind="reason", target="think", text="Another reason.", reason="So.")
    assert "Another reason." in shown(school, submission)
    with school.store.write() as session:
        session.get_one(tables.Change, number).undone_at = now(session)
    page = shown(school, submission)
    assert "Another reason." not in page
    assert "Said by a person." in page


def test_what_is_kept_for_staff_is_not_for_the_student(school: School) -> None:
    submission = graded(school)
    change(school, submission, kind="reason", target="think", text="Another reason.", reason="So.")
    staff = shown(school, submission, "teacher")
    mine = shown(school, submission)
    assert "<bdi>Teacher</bdi>" in staff
    assert "<bdi>Teacher</bdi>" not in mine
    with school.store.write() as session:
        grade = session.query(tables.Grade).filter_by(submission_id=submission).one()
        grade.released_at = None
    assert "Another reason." not in shown(school, submission)
    assert "Another reason." in shown(school, submission, "teacher")
    assert school.client("ben").get(f"/submissions/{submission}").status_code == 404


def test_a_picture_is_asked_for_each_time_and_sent_once(school: School) -> None:
    data = notebook(text("x"), code("plot()", picture(png(30, 20))))
    submission = school.submit("anna", data=data, name=NOTEBOOK)
    (url,) = re.findall(r'<img class="picture" loading="eager" src="([^"]+)"', shown(school, submission))
    first = school.client("anna").get(url)
    known = {"If-None-Match": first.headers["ETag"]}
    assert first.headers["Cache-Control"] == "private, no-cache"
    assert school.client("anna").get(url, headers=known).status_code == 304
    assert school.client("ben").get(url, headers=known).status_code == 404
