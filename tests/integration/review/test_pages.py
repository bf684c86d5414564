"""Reviewing: the list and its filters, changes with their originals, releases, curves, second marks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from html import unescape
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from flask.testing import FlaskClient

from grading.domain.document import Location
from grading.domain.evidence import Flag
from grading.domain.jobs import Quote
from grading.domain.permissions import Actor
from grading.domain.report import Report
from grading.domain.round_states import RoundState
from grading.scoring.curves import Curve
from grading.store import periodic_tasks, tables
from grading.store.completion import finish_round
from grading.store.database import now
from grading.store.grades import release
from grading.store.review import comment_bank, curves, second_marking
from grading.store.rounds import locking
from grading.store.submissions.intake import add_round
from grading.store.views import review_worklist
from grading.store.views import submission as submission_view
from grading.store.views.review_worklist import Filters
from tests.integration.webapp import School, form_token, report, undo, without_tokens
from workers.server.context import Server
from workers.server.housekeeping import do_chores


@pytest.fixture
def school(tmp_path: Path) -> Iterator[School]:
    made = School(tmp_path)
    yield made
    made.close()


def given(load: float, think: float, **changes: Any) -> Report:
    """A report with these points."""
    plain = report()
    first, second = plain.criteria
    criteria = (
        first.model_copy(update={"points": load, "level": load}),
        second.model_copy(update={"points": think, "level": think / 1.5}),
    )
    total = load + think
    return report(**{"criteria": criteria, "points": total, "points_so_far": total, **changes})


def pointing(plain: Report) -> Report:
    """The report with evidence of its first criterion in line 3, and a quote of lines 1 and 2."""
    first, *others = plain.criteria
    met, *rest = first.evidence
    met = met.model_copy(update={"location": Location(document="work.py", line=3)})
    quote = Quote(text="import pandas\nsales", location=Location(document="work.py", line=1))
    first = first.model_copy(update={"evidence": (met, *rest), "quotes": (quote,)})
    return plain.model_copy(update={"criteria": (first, *others)})


def stamp(client: FlaskClient, submission: str) -> str:
    page = client.get(f"/submissions/{submission}/review").get_data(as_text=True)
    found = re.search(r'name="seen" value="([^"]+)"', page)
    assert found is not None
    return found[1]


def post(client: FlaskClient, path: str, **form: Any) -> Any:
    return client.post(path, data={"csrf_token": form_token(client), **form})


def change(client: FlaskClient, submission: str, **form: Any) -> Any:
    form.setdefault("seen", stamp(client, submission))
    return post(client, f"/submissions/{submission}/review/change", **form)


def grade_of(school: School, submission: str) -> tables.Grade:
    with school.store.read() as session:
        return session.query(tables.Grade).filter_by(submission_id=submission).one()


def news(school: School) -> list[str]:
    """What other systems are told after the submission itself."""
    with school.store.read() as session:
        rows = session.query(tables.Outbox).filter_by(kind="event").order_by(tables.Outbox.id)
        return [row.payload["type"] for row in rows if row.payload["type"] != "submission.received"]


def audited(school: School, action: str) -> list[dict[str, Any]]:
    with school.store.read() as session:
        return [row.detail for row in session.query(tables.Audit).filter_by(action=action)]


def names(page: str) -> list[str]:
    """Students in the list, in its order."""
    return re.findall(r'class="name"><bdi>([^<]*)</bdi>', page)


def test_a_submission_and_its_review_lead_to_each_other(school: School) -> None:
    submission = school.submit("anna")
    school.grade(submission, given(1, 1), released=True)
    page, review = f"/submissions/{submission}", f"/submissions/{submission}/review"
    there = {who: school.client(who).get(page).get_data(as_text=True) for who in ("teacher", "anna")}
    assert f'href="{review}"' in there["teacher"]
    assert review not in there["anna"]
    back = school.client("teacher").get(review).get_data(as_text=True)
    assert f'href="{page}"' in back
    tab = f'href="/assignments/{school.assignment}/review" aria-current="true"'
    assert tab in back  # where one is, while looking at one submission, too


def test_a_page_that_is_kept_is_never_out_of_date(school: School) -> None:
    anna, ben = school.submit("anna"), school.submit("ben")
    school.grade(anna, given(1, 1))
    school.grade(ben, given(2, 6))
    readers = {name: school.client(name) for name in ("teacher", "grader")}

    def pages(path: str = f"/submissions/{anna}/review") -> dict[str, str]:
        for client in readers.values():
            client.get(path)  # the second look is at what is kept
        return {name: client.get(path).get_data(as_text=True) for name, client in readers.items()}

    def said(words: str) -> list[bool]:
        return [words in page for page in pages().values()]

    first = pages()
    tokens = {who: set(re.findall(r'name="csrf_token" value="([^"]+)"', page)) for who, page in first.items()}
    assert [len(found) for found in tokens.values()] == [1, 1]
    assert not tokens["teacher"] & tokens["grader"]  # of kept parts, too
    assert not re.search("<!--[0-9a-f]{32}-->", "".join(first.values()))
    assert said("Never seen before.") == said("Ana Maria") == said("Saved elsewhere.") == [False, False]
    assert change(readers["teacher"], anna, kind="add", text="Never seen before.").status_code == 303
    assert said("Never seen before.") == [True, True]
    assert (
        change(readers["grader"], anna, kind="points", target="load", points="3", reason="r").status_code
        == 303
    )
    assert said('<span class="review-total">4</span>') == [True, True]
    with school.store.write() as session:
        comment_bank.save_comment(session, school.course, "Saved elsewhere.", Actor(1, True, {}))
        session.query(tables.User).filter_by(name="Ben").one().name = "Ana Maria"
    assert said("Saved elsewhere.") == said("Ana Maria") == [True, True]
    with school.store.write() as session:
        session.get_one(tables.Assignment, school.assignment).title = "Another title"
    assert said("Another title") == [True, True]
    listing = f"/assignments/{school.assignment}/review"
    assert [names(page) for page in pages(listing).values()] == [["Ana Maria", "Anna"]] * 2
    mark = f"/submissions/{anna}/second-marking"
    assert "as not blind" in pages(mark)["grader"]
    with school.store.write() as session:
        session.query(tables.Membership).filter_by(role="grader").delete()
    told = [
        readers["grader"].get(path).status_code for path in (f"/submissions/{anna}/review", listing, mark)
    ]
    assert told == [404, 404, 404]
    assert readers["teacher"].get(listing).status_code == 200


def test_reviewers_of_a_submission_see_each_other(school: School) -> None:
    submission = school.submit("anna")
    school.grade(submission, given(1, 1))
    page, asked = f"/submissions/{submission}/review", f"/submissions/{submission}/review/viewers"
    teacher, grader = school.client("teacher"), school.client("grader")
    assert "Also viewing now:" not in teacher.get(page).get_data(as_text=True)
    assert "Also viewing now: <bdi>Teacher</bdi>" in grader.get(page).get_data(as_text=True)
    told = teacher.get(asked).get_data(as_text=True)
    assert "Also viewing now: <bdi>Grader</bdi>" in told
    assert f'data-stamp="{stamp(teacher, submission)}"' in told
    assert change(grader, submission, kind="add", text="Look again.").status_code == 303
    assert f'data-stamp="{stamp(teacher, submission)}"' in teacher.get(asked).get_data(as_text=True)
    assert f'data-stamp="{stamp(teacher, submission)}"' not in told


def test_criteria_name_the_lines_of_their_evidence(school: School) -> None:
    submission = school.submit("anna")
    school.grade(submission, pointing(given(1, 1)))
    page = school.client("grader").get(f"/submissions/{submission}/review").get_data(as_text=True)
    assert 'data-criterion="1" data-lines="line-0-1-3:1 line-0-1-1:2"' in page
    assert page.count('id="line-0-1-3"') == page.count('id="line-0-1-1"') == 1
    assert '<a class="place" href="#line-0-1-3">work.py, line 3</a>' in page
    assert 'data-place="0:"' in page


# --- the list -----------------------------------------------------------------------------------------


def test_the_list_shows_who_counts_and_filters_by_address(school: School) -> None:
    old, new, ben = school.submit("anna"), school.submit("anna"), school.submit("ben")
    school.grade(old, given(1, 1))
    school.grade(new, given(4, 4.5), released=True)
    school.grade(ben, given(2, 6, held=True, flags=()))
    school.ran(ben, "analysis")
    with school.store.write() as session:
        run = session.query(tables.Run).one()
        run.machine, run.model = "dgx-spark-1", "qwen3-coder:30b"
    teacher = school.client("teacher")
    url = f"/assignments/{school.assignment}/review"

    def listed(**query: Any) -> list[str]:
        answer = teacher.get(url, query_string=query)
        assert answer.status_code == 200
        return names(answer.get_data(as_text=True))

    assert listed() == ["Anna", "Ben"]
    assert listed(all=1) == ["Anna", "Anna", "Ben"]
    assert listed(sort="-name") == ["Ben", "Anna"]
    assert listed(sort="points") == ["Ben", "Anna"]
    assert listed(sort="todo") == ["Ben", "Anna"]
    assert listed(look="held") == ["Ben"]
    assert listed(look="flagged") == ["Anna"]
    assert listed(look="reviewed") == []
    assert listed(released="yes") == ["Anna"]
    assert listed(released="no") == ["Ben"]
    assert listed(low=8.2) == ["Anna"]
    assert listed(low="8,2", high=100) == ["Anna"]
    assert listed(criterion="load", chigh=3) == ["Ben"]
    assert listed(criterion="load", sort="criterion") == ["Ben", "Anna"]
    assert listed(machine="dgx-spark-1") == ["Ben"]
    assert listed(model="qwen3-coder:30b") == ["Ben"]
    assert listed(model="another") == []
    assert listed(q="ANN") == ["Anna"]
    assert listed(q="worth a look") == ["Anna"]
    assert listed(q="%") == []
    assert listed(state="open") == []
    # what makes no sense is left out, and breaks nothing
    nonsense = {"sort": "x'--", "low": "nan", "page": "99999", "look": "\0", "criterion": "no'; drop"}
    assert listed(**nonsense) == ["Anna", "Ben"]
    for name in ('a"b', "$.x", "load'", "ÄÖ", "x" * 65):
        assert listed(criterion=name, clow=0, sort="criterion") == ["Ben", "Anna"], name


def test_late_and_regrade_filters(school: School) -> None:
    one, two = school.submit("anna"), school.submit("ben")
    school.grade(one, report())
    with school.store.write() as session:
        assignment = session.get_one(tables.Assignment, school.assignment)
        moment = now(session)
        assignment.due_at = moment - timedelta(days=365)
        assignment.late = {"grace_minutes": 5}
        student, when = school.users["ben"], moment + timedelta(days=365)
        own = {"assignment_id": school.assignment, "student_id": student, "due_at": when, "at": moment}
        session.add(tables.Extension(**own))
        round_id = session.query(tables.Grade).one().round_id
        asked = {"submission_id": one, "round_id": round_id, "student_id": school.users["anna"]}
        session.add(tables.RegradeRequest(**asked, course_id=school.course, reason="why?", created_at=moment))
    teacher, url = school.client("teacher"), f"/assignments/{school.assignment}/review"
    assert names(teacher.get(url, query_string={"late": 1}).get_data(as_text=True)) == ["Anna"]
    page = teacher.get(url, query_string={"look": "regrade"}).get_data(as_text=True)
    assert names(page) == ["Anna"]
    assert "regrade requested" in page
    assert two not in page


def test_the_best_counts_where_the_assignment_says_so(school: School) -> None:
    good, bad = school.submit("anna"), school.submit("anna")
    school.grade(good, given(4, 4))
    school.grade(bad, given(1, 1))
    url = f"/assignments/{school.assignment}/review"
    teacher = school.client("teacher")
    assert f"/submissions/{bad}/review" in teacher.get(url).get_data(as_text=True)
    with school.store.write() as session:
        session.get_one(tables.Assignment, school.assignment).counts = "best"
    page = teacher.get(url).get_data(as_text=True)
    assert f"/submissions/{good}/review" in page
    assert f"/submissions/{bad}/review" not in page


def test_empty_lists_say_what_they_are(school: School) -> None:
    teacher, url = school.client("teacher"), f"/assignments/{school.assignment}/review"
    assert "No submissions yet." in teacher.get(url).get_data(as_text=True)
    assert "No submissions match this filter." in teacher.get(f"{url}?q=x").get_data(as_text=True)
    waiting = school.submit("anna")
    page = teacher.get(f"/submissions/{waiting}/review").get_data(as_text=True)
    assert "still being graded" in page
    assert "review/accept" not in page


def test_all_of_it_works_alike_on_both_databases(school_url: str) -> None:
    school = School(school_url)
    anna, ben = school.submit("anna"), school.submit("ben")
    school.grade(anna, given(4, 4))
    school.grade(ben, given(2, 2, held=True))
    with school.store.write() as session:
        assignment = review_worklist.find_assignment(session, school.assignment)
        own = {"student_id": school.users["anna"], "due_at": now(session), "at": now(session)}
        session.add(tables.Extension(assignment_id=school.assignment, **own))
        assignment.counts = "best"
    looks = ("held", "flagged", "unreviewed", "reviewed", "changed", "regrade")
    choices: list[dict[str, Any]] = [{"look": look} for look in looks]
    choices += [{"released": one} for one in ("yes", "no", "withdrawn")] + [{"state": "open"}, {"q": "an"}]
    choices += [{"sort": one} for one in ("name", "-name", "new", "old", "points", "-points", "todo")]
    choices += [
        {"criterion": "load", "criterion_low": 1, "sort": "criterion"},
        {"machine": "m", "model": "n"},
    ]
    choices += [{"everything": True}, {"late": True}, {"low": 1, "high": 9}]
    me = Actor(school.users["teacher"])
    with school.store.write() as session:
        assignment = review_worklist.find_assignment(session, school.assignment)
        for choice in choices:
            filters = Filters(**choice)
            found = [one.id for one in review_worklist.load_page(session, assignment, filters).items]
            beside = review_worklist.neighbours(session, assignment, filters, anna)
            if anna in found:  # neighbours are those of the list
                around = [None, *found, None]
                at = around.index(anna)
                assert beside == (around[at - 1], around[at + 1]), choice
        curve = Curve(kind="floor", points=5)
        seen = curves.preview_curve(session, assignment, curve).seen
        assert curves.apply_curve(session, assignment, curve, me, seen=seen, reason="r")[1] == 1
        (bulk,) = curves.list_applied_curves(session, school.assignment)
        assert curves.undo_curve(session, assignment, bulk.id, me) == 1
        assert release.release_all(session, school.assignment, me) == 1
        assert release.withdraw_all(session, school.assignment, me) == 1
        release.set_policy(session, assignment, "at", now(session), me)
        (name,) = release.list_due_releases(session)
        assert release.release_due(session, name) == 0  # the one that is not held was withdrawn
        assert release.count_grades(session, school.assignment).withdrawn == 1
        assert len(second_marking.draw_sample(session, assignment, 9, "s")) == 2
        assert [one.others for one in second_marking.load_sample(session, school.assignment, [anna], me)] == [
            0
        ]
    school.close()


def test_superseded_work_says_so_everywhere(school: School) -> None:
    first, second = school.submit("anna"), school.submit("anna")
    for one, points in ((first, 4), (second, 2)):
        school.grade(one, given(points, 1), released=one == first)
    teacher, anna = school.client("teacher"), school.client("anna")
    urls = (f"/submissions/{first}", f"/submissions/{first}/review")
    listed = f"/assignments/{school.assignment}/review?all=1"

    def seen(client: FlaskClient, *pages: str) -> list[bool]:
        texts = [client.get(url).get_data(as_text=True).lower() for url in pages]
        return ["superseded by submission 2" in one or "submission 2 counts instead" in one for one in texts]

    assert seen(teacher, *urls, listed, "/submissions") == [True] * 4
    assert seen(anna, urls[0], "/submissions") == [True, True]
    token = school.token("teacher")
    status = school.client().get(f"/api/v1/submissions/{first}", headers=token).get_json()
    items = school.client().get("/api/v1/submissions", headers=token).get_json()["items"]
    assert status["superseded_by"] == second
    assert {one["id"]: one["superseded_by"] for one in items} == {first: second, second: None}
    with school.store.write() as session:
        session.get_one(tables.Assignment, school.assignment).counts = "best"
    assert seen(teacher, *urls, listed, "/submissions") == [False] * 4
    assert seen(anna, urls[0], f"/submissions/{second}") == [False, False]
    later = teacher.get(f"/submissions/{second}").get_data(as_text=True)
    assert "Submission 1 counts instead." in later


def test_filters_are_chips_that_lead_to_the_list_without_them(school: School) -> None:
    teacher = school.client("teacher")
    url = f"/assignments/{school.assignment}/review"
    page = teacher.get(f"{url}?look=held&criterion=load&clow=1&sort=new").get_data(as_text=True)
    chips = [unescape(one) for one in re.findall(r'data-chip href="([^"]+)"', page)]
    assert chips == [
        f"{url}?criterion=load&clow=1&sort=new",
        f"{url}?look=held&sort=new",
        f"{url}?look=held&criterion=load&sort=new",
    ]
    assert "data-chip" not in teacher.get(url).get_data(as_text=True)
    for path in (
        f"/submissions?assignment={school.assignment}&state=graded",
        f"/courses/{school.course}/people?q=a&role=student",
    ):
        assert teacher.get(path).get_data(as_text=True).count("data-chip") == 2


def test_a_held_grade_is_released_after_its_reasons_were_read(school: School) -> None:
    submission = school.submit("anna")
    reason = Flag(code="disagreement", message="Check and model disagree.", hold=True)
    school.grade(submission, report(held=True, flags=(reason,)))
    teacher, url = school.client("teacher"), f"/submissions/{submission}/review/release"
    asked = post(teacher, url, seen=stamp(teacher, submission)).get_data(as_text=True)
    assert "Check and model disagree." in asked
    assert post(teacher, f"/submissions/{submission}/release").headers["Location"].endswith("/review")
    assert grade_of(school, submission).released_at is None
    assert post(teacher, url, seen=stamp(teacher, submission), sure="1").status_code == 303
    assert grade_of(school, submission).released_at is not None


def test_a_stable_order_pages_without_gaps(school: School) -> None:
    with school.store.write() as session:
        student = school.users["anna"]
        for number in range(1, 61):
            of = {"assignment_id": school.assignment, "student_id": student, "number": number}
            one = tables.Submission(**of, source="form", documents=[], notes=[], created_at=now(session))
            session.add(one)
            session.flush()
            version = session.query(tables.RubricVersion).filter_by(assignment_id=school.assignment).one()
            round_ = {"submission_id": one.id, "number": 1, "reason": "first", "state": "queued"}
            round_ |= {"course_id": school.course, "student_id": student, "rubric_version_id": version.id}
            session.add(tables.Round(**round_, created_at=now(session)))
    teacher, url, seen = school.client("teacher"), f"/assignments/{school.assignment}/review", []
    for page in (1, 2, 3):
        text = teacher.get(f"{url}?all=1&page={page}").get_data(as_text=True)
        seen += re.findall(r'href="/submissions/(\w+)/review', text)
    assert (len(seen), len(set(seen))) == (60, 60)
    with school.store.read() as session:
        assignment = review_worklist.find_assignment(session, school.assignment)
        for before, here, after in zip(seen, seen[1:], seen[2:], strict=False):
            found = review_worklist.neighbours(session, assignment, Filters(everything=True), here)
            assert found == (before, after)


# --- changing -----------------------------------------------------------------------------------------


def test_points_change_with_a_reason_and_the_original_stays(school: School) -> None:
    submission = school.submit("anna")
    school.grade(submission, given(4, 4.5))
    grader = school.client("grader")
    form = {"kind": "points", "target": "load"}
    refused = change(grader, submission, points="2", reason=" ", **form)
    assert (
        refused.status_code,
        "Enter a reason for changing the points" in refused.get_data(as_text=True),
    ) == (
        422,
        True,
    )
    for bad in ("5", "-1", "nan", "inf", "x", ""):
        assert change(grader, submission, points=bad, reason="so", **form).status_code == 422, bad
    assert change(grader, submission, kind="points", target="no", points="1", reason="x").status_code == 422
    done = change(grader, submission, points="2,5", reason="Only half of it.", back="rv-criterion-1", **form)
    assert done.status_code == 303
    assert done.headers["Location"].endswith("#rv-criterion-1")
    grade = grade_of(school, submission)
    assert (grade.points, grade.final_points, grade.report["points"]) == (7, 7, 8.5)
    assert grade.criterion_points == {"load": 2.5, "think": 4.5}
    page = grader.get(f"/submissions/{submission}/review").get_data(as_text=True)
    assert "4 → 2.5 points" in page
    assert "Only half of it." in page
    assert [d["from"] for d in audited(school, "grade.change")] == [{"points": 4}]
    with school.store.read() as session:
        made = session.query(tables.Change).one()
    undone = post(
        grader, f"/submissions/{submission}/review/undo", change=made.id, seen=stamp(grader, submission)
    )
    assert undone.status_code == 303
    assert grade_of(school, submission).final_points == 8.5
    assert len(audited(school, "grade.undo")) == 1


def test_words_remarks_and_comments(school: School) -> None:
    submission = school.submit("anna")
    school.grade(submission, report(), released=True)
    grader, anna = school.client("grader"), school.client("anna")
    ok = [
        {"kind": "reason", "target": "load", "text": "A better reason."},
        {"kind": "text", "target": "feedback.achieved", "text": "You did it."},
        {"kind": "remark", "target": "finding:1", "text": "Drop rows without a day."},
        {"kind": "hide", "target": "finding:0", "reason": "wrong"},
        {"kind": "add", "text": "Look here.", "place": "0:", "line": "3", "keep": "1"},
        {"kind": "add", "text": "All in all fine."},
        {"kind": "adjust", "points": "-0,5", "reason": "Submitted twice."},
    ]
    for form in ok:
        assert change(grader, submission, **form).status_code == 303, form
    bad = [
        {"kind": "reason", "target": "load", "text": ""},
        {"kind": "text", "target": "feedback.judgements", "text": "x"},
        {"kind": "text", "target": "stages.analysis", "text": "x"},
        {"kind": "remark", "target": "finding:9", "text": "x"},
        {"kind": "remark", "target": "finding:-1", "text": "x"},
        {"kind": "hide", "target": "criteria:0"},
        {"kind": "add", "text": ""},
        {"kind": "add", "text": "x", "place": "7:", "line": "1"},
        {"kind": "add", "text": "x", "place": "0:", "line": "999"},
        {"kind": "add", "text": "x", "place": "0:9"},
        {"kind": "add", "text": "x", "line": "3"},
        {"kind": "adjust", "points": "1000000", "reason": "x"},
        {"kind": "nonsense", "text": "x"},
    ]
    for form in bad:
        assert change(grader, submission, **form).status_code == 422, form
    seen = anna.get(f"/submissions/{submission}").get_data(as_text=True)
    for text in (
        "A better reason.",
        "You did it.",
        "Drop rows without a day.",
        "Look here.",
        "All in all fine.",
    ):
        assert text in seen, text
    assert "Good use of pandas" not in seen
    assert grade_of(school, submission).final_points == 8
    assert news(school).count("grade.changed") == len(ok)
    page = grader.get(f"/submissions/{submission}/review").get_data(as_text=True)
    assert "Good use of pandas" in page  # staff still find it, to show it again
    assert "Look here." in grader.get(f"/courses/{school.course}/comments").get_data(as_text=True)


def test_nothing_is_overwritten_when_two_change_at_once(school: School) -> None:
    submission = school.submit("anna")
    school.grade(submission, given(4, 4.5))
    grader, teacher = school.client("grader"), school.client("teacher")
    early = stamp(grader, submission)
    form = {"kind": "points", "target": "load", "points": "1", "reason": "mine"}
    assert change(teacher, submission, **{**form, "points": "3", "reason": "theirs"}).status_code == 303
    late = change(grader, submission, seen=early, **form)
    page = late.get_data(as_text=True)
    assert late.status_code == 409
    assert "Someone changed this grade" in page
    assert "Teacher" in page
    assert "theirs" in page
    assert 'value="mine"' in page  # what was typed is still there
    assert grade_of(school, submission).points == 7.5
    assert school.count(tables.Change) == 1
    # accepting or releasing what one has not seen does not work either
    for what in ("accept", "undo"):
        answer = post(grader, f"/submissions/{submission}/review/{what}", seen=early, change=1)
        assert answer.status_code == 409, what
    assert post(teacher, f"/submissions/{submission}/review/release", seen=early).status_code == 409
    assert grade_of(school, submission).released_at is None
    # with the new state it works; sent a second time it changes nothing
    seen = stamp(grader, submission)
    assert change(grader, submission, seen=seen, **form).status_code == 303
    assert change(grader, submission, seen=seen, **form).status_code == 303
    assert school.count(tables.Change) == 2
    # somebody takes it back: whoever did not see that is told, too
    stale = stamp(teacher, submission)
    with school.store.read() as session:
        newest = max(row.id for row in session.query(tables.Change))
    post(grader, f"/submissions/{submission}/review/undo", change=newest, seen=stale)
    answer = change(teacher, submission, seen=stale, **form)
    assert answer.status_code == 409
    assert "undid:" in answer.get_data(as_text=True)


def test_two_at_the_same_moment_make_one_change(school_url: str) -> None:
    """Both have seen the same state; the one that comes second is told, whichever that is."""
    school = School(school_url)
    submission = school.submit("anna")
    school.grade(submission, given(4, 4.5))
    clients = [school.client("grader"), school.client("teacher")]
    seen = stamp(clients[0], submission)
    tokens = [form_token(client) for client in clients]
    together = Barrier(2)

    def send(number: int) -> int:
        form = {"kind": "points", "target": "load", "points": str(number), "reason": "mine", "seen": seen}
        together.wait(timeout=30)
        url = f"/submissions/{submission}/review/change"
        return clients[number].post(url, data={"csrf_token": tokens[number], **form}).status_code

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(send, (0, 1))) == [303, 409]
    assert school.count(tables.Change) == 1
    assert grade_of(school, submission).points == 4.5 + float(_only(school).value["points"])
    school.close()


def _only(school: School) -> tables.Change:
    with school.store.read() as session:
        return session.query(tables.Change).one()


def test_a_new_grading_makes_old_forms_stale(school: School) -> None:
    submission = school.submit("anna")
    school.grade(submission, report())
    grader = school.client("grader")
    for seen in ("", "x", "a.b.c", "0" * 32 + ".0.0"):
        form = {"kind": "points", "target": "load", "points": "1", "reason": "r"}
        assert change(grader, submission, seen=seen, **form).status_code == 409


# --- accepting, releasing, withdrawing ----------------------------------------------------------------


def test_accept_goes_on_to_the_next_of_the_list(school: School) -> None:
    anna, ben = school.submit("anna"), school.submit("ben")
    school.grade(anna, report(held=True))
    school.grade(ben, report(held=True))
    grader = school.client("grader")
    url = f"/submissions/{anna}/review/accept?look=unreviewed"
    assert "only after you release it" in grader.get(f"/submissions/{anna}/review").get_data(as_text=True)
    answer = post(grader, url, seen=stamp(grader, anna))
    assert answer.headers["Location"] == f"/submissions/{ben}/review?look=unreviewed"
    grade = grade_of(school, anna)
    assert (grade.held, grade.reviewed_by, grade.released_at) == (False, school.users["grader"], None)
    assert grade.reviewed_at is not None
    assert undo(grader, answer.headers["Location"]).headers["Location"] == url.replace("/accept", "")
    grade = grade_of(school, anna)
    assert (grade.held, grade.reviewed_by, grade.reviewed_at) == (True, None, None)
    post(grader, url, seen=stamp(grader, anna))
    answer = post(grader, f"/submissions/{ben}/review/accept?look=unreviewed", seen=stamp(grader, ben))
    assert answer.headers["Location"] == f"/submissions/{ben}/review?look=unreviewed"
    assert "That was the last submission" in grader.get(answer.headers["Location"]).get_data(as_text=True)
    assert len(audited(school, "grade.accept")) == 3


def test_accepting_releases_where_the_assignment_does(school: School) -> None:
    held = school.submit("anna", school.quick)
    school.grade(held, report(held=True))
    grader = school.client("grader")
    assert "The grade is then released, as set" in grader.get(f"/submissions/{held}/review").get_data(True)
    answer = post(grader, f"/submissions/{held}/review/accept", seen=stamp(grader, held))
    assert grade_of(school, held).released_at is not None
    assert news(school) == ["grade.released"]
    undo(grader, answer.headers["Location"])
    grade = grade_of(school, held)
    assert (grade.held, grade.released_at, grade.released_by) == (True, None, None)
    assert news(school) == ["grade.released", "grade.withdrawn"]


def test_withdrawn_grades_are_hidden_again(school: School) -> None:
    submission = school.submit("anna")
    school.grade(submission, given(4, 3.25), released=True)
    teacher, anna = school.client("teacher"), school.client("anna")
    assert "7.25" in anna.get(f"/submissions/{submission}").get_data(as_text=True)
    assert post(school.client("grader"), f"/submissions/{submission}/review/withdraw").status_code == 403
    assert (
        post(teacher, f"/submissions/{submission}/review/withdraw", reason="wrong rubric").status_code == 303
    )
    page = anna.get(f"/submissions/{submission}").get_data(as_text=True)
    assert "7.25" not in page
    assert "Withdrawn" in page
    assert news(school) == ["grade.withdrawn"]
    assert [one["reason"] for one in audited(school, "grade.withdraw")] == ["wrong rubric"]
    assert "withdrawn" in teacher.get(f"/submissions/{submission}/review").get_data(as_text=True)
    released = post(teacher, f"/submissions/{submission}/review/release", seen=stamp(teacher, submission))
    assert undo(teacher, released.headers["Location"]).status_code == 303
    assert "7.25" not in anna.get(f"/submissions/{submission}").get_data(as_text=True)
    assert grade_of(school, submission).released_by == school.users["teacher"]  # withdrawn, as it was
    post(teacher, f"/submissions/{submission}/review/release", seen=stamp(teacher, submission))
    assert "7.25" in anna.get(f"/submissions/{submission}").get_data(as_text=True)
    assert news(school) == ["grade.withdrawn", *(["grade.released", "grade.withdrawn", "grade.released"])]


@pytest.mark.parametrize("at_once", [True, False])
def test_what_was_withdrawn_is_not_released_by_itself_when_it_is_graded_again(
    school: School, at_once: bool
) -> None:
    """Nor later: by its date, or when somebody accepts what was held."""
    submission, usual = school.submit("anna", school.quick), school.submit("ben", school.quick)
    for one in (submission, usual):
        school.grade(one, report(), released=True)
    post(school.client("teacher"), f"/submissions/{submission}/review/withdraw", reason="wrong rubric")
    for one in (submission, usual):
        with school.store.write() as session:
            row = session.get_one(tables.Submission, one)
            again = add_round(session, row, row.assignment, reason="regrade", priority="interactive").id
            current = locking.lock_round(session, again)
            assert current is not None
            finish_round.finish_round(
                session,
                current,
                report("again"),
                finish_round.load_round_end(session, current.id),
                release=at_once,
            )
    with school.store.read() as session:
        now_ = {one: submission_view.load_view(session, one) for one in (submission, usual)}
    assert (now_[submission].released, now_[submission].withdrawn) == (False, True)
    assert (now_[usual].released, now_[usual].withdrawn) == (at_once, False)


def test_chosen_ones_are_released_but_never_held_ones(school: School) -> None:
    anna, ben, other = school.submit("anna"), school.submit("ben"), school.submit("anna", school.quick)
    school.grade(anna, report())
    school.grade(ben, report(held=True))
    school.grade(other, report())
    teacher, url = school.client("teacher"), f"/assignments/{school.assignment}/review"
    chosen = [anna, ben, other, "x" * 32, "';--"]
    assert post(school.client("grader"), f"{url}/selected", do="release", chosen=chosen).status_code == 403
    assert post(teacher, f"{url}/selected", do="release", chosen=[]).status_code == 303
    post(teacher, f"{url}/selected", do="release", chosen=chosen)
    undo(teacher, url)
    assert (grade_of(school, anna).released_at, grade_of(school, anna).released_by) == (None, None)
    post(teacher, f"{url}/selected", do="release", chosen=chosen)
    seen = {one: grade_of(school, one).released_at is not None for one in (anna, ben, other)}
    assert seen == {anna: True, ben: False, other: False}
    asked = post(teacher, f"{url}/selected", do="withdraw", chosen=chosen)
    assert "Withdraw 4 grades?" in asked.get_data(as_text=True)
    assert grade_of(school, anna).released_at is not None
    post(teacher, f"{url}/selected", do="withdraw", chosen=chosen, sure="1")
    assert grade_of(school, anna).released_at is None
    undo(teacher, url)
    assert grade_of(school, anna).released_at is not None
    post(teacher, f"{url}/undo", released="2001-01-01T00:00:00+00:00")
    assert "changed in the meantime" in teacher.get(url).get_data(as_text=True)


def test_all_that_is_not_held_is_released(school: School) -> None:
    plain, held, partial = (school.submit(name) for name in ("anna", "ben", "ben"))
    school.grade(plain, report())
    school.grade(held, report(held=True))
    school.grade(partial, report(status=RoundState.PARTIAL, points=None))
    teacher, url = school.client("teacher"), f"/assignments/{school.assignment}/review/release"
    page = teacher.get(url).get_data(as_text=True)
    assert "Release 1 grade" in page
    post(teacher, url, do="now")
    assert [grade_of(school, one).released_at is not None for one in (plain, held, partial)] == [
        True,
        False,
        False,
    ]
    assert post(teacher, url, do="withdraw").status_code == 422
    post(teacher, url, do="withdraw", sure="1")
    assert grade_of(school, plain).released_at is None


def test_grades_are_released_at_their_date(school: School) -> None:
    plain, held, late, kept = (school.submit(name) for name in ("anna", "ben", "anna", "ben"))
    school.grade(plain, report())
    school.grade(held, report(held=True))
    school.grade(kept, report(), released=True)
    teacher, url = school.client("teacher"), f"/assignments/{school.assignment}/review/release"
    assert post(teacher, url, do="policy", release="at", at="").status_code == 422
    assert post(teacher, url, do="policy", release="at", at="x").status_code == 422
    assert post(teacher, url, do="policy", release="never").status_code == 422
    with school.store.read() as session:
        start = now(session)
    date = f"{start:%Y-%m-%d}T23:59"
    assert post(teacher, url, do="policy", release="at", at=date, offset="-120").status_code == 303
    assert post(teacher, f"/submissions/{kept}/review/withdraw").status_code == 303
    with school.store.read() as session:
        at = session.get_one(tables.Assignment, school.assignment).release_at
    assert at is not None
    assert f"{at:%H:%M}" == "21:59"  # two hours east of Greenwich
    with school.store.write() as session:
        assignment = session.get_one(tables.Assignment, school.assignment)
        assignment.release_at = now(session) + timedelta(days=100)
        assert release.list_due_releases(session) == []
        assert not release.is_automatic(assignment.release, assignment.release_at, now(session))
    school.store.clock_offset_s = 100 * 86_400 + 30
    with school.store.read() as session:
        (name,) = release.list_due_releases(session)
    do_chores(Server(config=school.services.config, store=school.store, dispatch=None))  # type: ignore[arg-type]
    with school.store.write() as session:
        assert release.release_due(session, name) == 0  # another sweeper, at the same moment
    released = {one: grade_of(school, one).released_at is not None for one in (plain, held, kept)}
    assert released == {plain: True, held: False, kept: False}
    # what ended meanwhile is released at the second look, then it is over
    school.grade(late, report())
    school.store.clock_offset_s += periodic_tasks.LEASE_S + 1
    with school.store.write() as session:
        assert release.list_due_releases(session) == [name]
        assert release.release_due(session, name) == 1
    school.store.clock_offset_s += 86_400
    with school.store.write() as session:
        assert release.release_due(session, name) == 0
        assert release.list_due_releases(session) == []


# --- curves -------------------------------------------------------------------------------------------


def test_a_curve_is_previewed_applied_and_undone_as_one(school: School) -> None:
    anna, ben = school.submit("anna"), school.submit("ben")
    school.grade(anna, given(4, 4), released=True)
    school.grade(ben, given(2, 2, held=True))
    teacher, url = school.client("teacher"), f"/assignments/{school.assignment}/review/curve"
    form = {"kind": "best", "points": "10"}
    page = teacher.get(url, query_string=form).get_data(as_text=True)
    assert "2 of 2 grades would change." in page
    seen = re.search(r'name="seen" value="([^"]+)"', page)
    assert seen is not None
    assert post(teacher, url, seen=seen[1], reason=" ", **form).status_code == 422
    assert post(teacher, url, seen="old", reason="fair", **form).status_code == 409
    assert post(school.client("grader"), url, seen=seen[1], reason="fair", **form).status_code == 403
    assert school.count(tables.Change) == 0
    assert post(teacher, url, seen=seen[1], reason="fair", **form).status_code == 303
    again = post(teacher, url, seen=seen[1], reason="fair", **form)  # sent twice
    assert again.status_code == 409
    assert f'action="{url}/undo"' in again.get_data(as_text=True).partition("data-undo")[0]
    assert [grade_of(school, one).final_points for one in (anna, ben)] == [10, 5]
    assert grade_of(school, ben).released_at is None
    assert news(school) == ["grade.changed"]  # of the one that students know
    with school.store.write() as session:
        from grading.store.grades.final_score import update_final_score

        found = session.query(tables.Grade).order_by(tables.Grade.id).all()
        assert [update_final_score(session, grade).final_points for grade in found] == [10, 5]
        (bulk,) = {row.bulk for row in session.query(tables.Change)}
    elsewhere = f"/assignments/{school.quick}/review/curve/undo"
    assert post(teacher, elsewhere, bulk=bulk).status_code == 404
    assert post(teacher, f"{url}/undo", bulk="").status_code == 404
    assert post(teacher, f"{url}/undo", bulk=bulk).status_code == 303
    assert [grade_of(school, one).final_points for one in (anna, ben)] == [8, 4]
    for bad in (
        {"kind": "x", "points": "1"},
        {"kind": "add"},
        {"kind": "add", "points": "1e9"},
        {"kind": "add", "points": "1", "criterion": "no"},
    ):
        assert teacher.get(url, query_string=bad).status_code == 422, bad


# --- second marking -----------------------------------------------------------------------------------


def test_marks_are_blind_until_the_grade_was_seen(school: School) -> None:
    anna, ben = school.submit("anna"), school.submit("ben")
    school.grade(anna, given(4, 3.25))
    school.grade(ben, given(4, 3.25))
    grader = school.client("grader")
    draw = grader.get(f"/assignments/{school.assignment}/second-marking?count=5&seed=a").get_data(
        as_text=True
    )
    assert "0 of 2 submissions marked by you" in draw
    page = grader.get(f"/submissions/{anna}/second-marking").get_data(as_text=True)
    for told in ("7.25", "The file is read with pandas", "Good use of pandas", "Anna"):
        assert told not in without_tokens(page), told
    levels = {"level-load": "3", "level-think": "2"}
    for bad in ({}, {"level-load": "3"}, {**levels, "level-load": "5"}, {**levels, "level-load": "nan"}):
        assert post(grader, f"/submissions/{anna}/second-marking", **bad).status_code == 422, bad
    assert (
        post(grader, f"/submissions/{anna}/second-marking?ids={anna},{ben}", **levels)
        .headers["Location"]
        .startswith(f"/submissions/{ben}/second-marking?ids=")
    )
    grader.get(f"/submissions/{ben}/review").close()  # looks are written down after the answer was sent
    post(grader, f"/submissions/{ben}/second-marking?ids={anna},{ben}", **levels)
    with school.store.read() as session:
        marks = {(m.submission_id, m.criterion): (m.level, m.blind) for m in session.query(tables.Mark)}
    assert marks[anna, "load"] == (3, True)
    assert marks[ben, "load"] == (3, False)
    # who marks again after having seen the grade is blind no more where the level is another
    grader.get(f"/submissions/{anna}/review").close()
    post(grader, f"/submissions/{anna}/second-marking", **{**levels, "level-load": "1"})
    with school.store.read() as session:
        marks = {(m.submission_id, m.criterion): (m.level, m.blind) for m in session.query(tables.Mark)}
    assert marks[anna, "load"] == (1, False)
    assert marks[anna, "think"] == (2, True)
    assert grade_of(school, anna).final_points == 7.25


# --- saved comments -----------------------------------------------------------------------------------


def test_saved_comments(school: School) -> None:
    grader, url = school.client("grader"), f"/courses/{school.course}/comments"
    for text in ("Name your <b>plots</b>.", "Name your <b>plots</b>.", "Second"):
        assert post(grader, url, text=text).status_code == 303
    assert post(grader, url, text="x" * 2_001).status_code == 422
    assert post(grader, url, text=" \0 ").status_code == 422
    assert school.count(tables.SavedComment) == 2
    submission = school.submit("anna")
    school.grade(submission, report())
    assert "Name your &lt;b&gt;plots" in grader.get(f"/submissions/{submission}/review").get_data(
        as_text=True
    )
    # without a script the one that was picked is what is said
    assert change(grader, submission, kind="add", text="", saved="Second").status_code == 303
    with school.store.read() as session:
        first = session.query(tables.SavedComment).order_by(tables.SavedComment.id).first()
        assert session.query(tables.Change).one().value == {"text": "Second"}
    assert first is not None
    assert post(school.client("stranger"), f"{url}/{first.id}/delete").status_code == 404
    assert post(grader, f"/courses/99/comments/{first.id}/delete").status_code == 404
    assert post(grader, f"{url}/{first.id}/delete").status_code == 303
    assert school.count(tables.SavedComment) == 1


def test_a_submission_of_another_course_is_not_there(school: School) -> None:
    submission = school.submit("anna")
    school.grade(submission, report())
    stranger = school.client("stranger")
    for path in (f"/submissions/{submission}/review", f"/assignments/{school.assignment}/review"):
        assert stranger.get(path).status_code == 404
    assert school.client("ben").get(f"/submissions/{submission}/review").status_code == 404
    assert school.client("anna").get(f"/submissions/{submission}/review").status_code == 403
