"""Releasing unread: the sample, blind marks, what they prove, what takes it back, who may do what."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from sqlalchemy import select

from grading.domain.report_changes import Change
from grading.domain.rubric import too_far
from grading.statistics.release_guarantee import Reason
from grading.store import tables
from grading.store.grades import release
from grading.store.privacy.deletion import delete_submissions
from grading.store.review import edits, level_views
from grading.store.trust import confidence, guarantees, release_records, release_samples
from grading.store.trust.guarantees import NothingProven, ProofChanged
from grading.store.trust.release_samples import Marks, Member, NothingToDraw, StillToMark
from tests.integration.review.test_pages import audited, given, post
from tests.integration.trust.guarantee_class import CLASS, SAMPLE, Class, publish, works
from tests.integration.webapp import report, undo

__all__ = ["works"]

FORM = {"scope": "each", "submissions": "5", "share": "0.05", "confidence": "0.95", "tolerance": "1"}


def test_a_marked_sample_proves_the_class(works: Class) -> None:
    assert "Nobody has checked these grades yet." in works.page()
    works.draw()
    drawn = works.drawn()
    assert len(set(drawn)) == SAMPLE
    works.mark(drawn[:10])
    assert not works.proof().proven  # what is not marked counts as wrong
    page = works.page()
    assert f"10 of the {SAMPLE} submissions of the sample are marked" in page
    assert f"{SAMPLE - 10} submissions of the sample are not marked yet" in page
    works.mark(drawn[10:], load=4)  # one level off is allowed
    proof = works.proof()
    assert len(proof.proven) == len(proof.ready) == CLASS
    assert proof.criteria[0].wrong == 0
    page = works.page()
    assert "at most 5 % of the released levels of each criterion are more than one level from" in page
    assert f"Release {CLASS} grades" in page


def test_what_differs_is_not_released_and_named(works: Class) -> None:
    works.draw(share=0.2, confidence=0.8)
    drawn = works.drawn()
    works.mark(drawn[1:])
    works.mark(drawn[:1], load=1)
    proof = works.proof()
    assert len(proof.proven) > SAMPLE
    named = {one.submission_id: (one.why, one.criteria) for one in proof.needs_person}
    assert named[drawn[0]] == ("differs", ("Loads the data",))
    assert drawn[0] not in proof.proven
    assert [(one.marked, one.wrong) for one in proof.criteria] == [(SAMPLE, 1), (SAMPLE, 0)]


def test_single_levels_prove_all_criteria_together(works: Class) -> None:
    school = works.school
    works.draw(50, together=True)
    levels = works.drawn_levels()
    assert len(set(levels)) == 50
    assert {name for _, name in levels} == {"load", "think"}
    page = works.page()
    assert "50 of 120 levels were drawn at random" in page
    assert "0 of the 50 levels of the sample are marked" in page
    assert "50 levels of the sample are not marked yet" in page
    grader, at = school.client("grader"), f"/assignments/{school.assignment}/review/sample"
    for name in ("load", "think"):
        mine = [one for one, criterion in levels if criterion == name]
        here = f"{at}/{name}/next"
        for position, one in enumerate(mine, 1):  # of this criterion only those that were drawn
            here = grader.get(here).headers.get("Location", here)
            assert here.endswith(f"/review/sample/{name}/submissions/{one}")
            if 3 < position < len(mine):  # each leads to the next
                works.mark_level(one, name)
                here = f"{at}/{name}/next"
                continue
            assert f"Sample, {position} of {len(mine)}" in grader.get(here).get_data(as_text=True)
            here = post(grader, here, level="3").headers["Location"]
    assert here == works.path
    proof = works.proof()
    assert (proof.marks, proof.read, proof.reason) == (50, 50, Reason.ALL_CANDIDATES)
    assert len(proof.proven) > 40
    page = works.page()
    assert f"{len(proof.proven)} of {CLASS}" in page
    assert f"Staff marked 50 of the {2 * len(proof.proven)} levels of these submissions" in page
    assert "at most 5 % of the released levels, of all criteria together, are more than one level" in page
    assert "By this criterion alone" not in page
    state = school.client().get(
        f"/api/v1/assignments/{school.assignment}/guarantee", headers=school.token("teacher", "read")
    )
    assert (state.json["together"], state.json["sampled"], state.json["marked"]) == (True, 50, 50)
    assert works.release() == len(proof.proven)
    with school.store.read() as session:
        assignment = session.get_one(tables.Assignment, school.assignment)
        record = release_records.record(session, assignment)
    first, name = levels[0]
    assert "50 single levels" in record
    assert re.search(rf"{first} \([^)]*{name}", record)
    assert "50 single levels" in works.page()


@pytest.mark.parametrize("together", [True, False])
def test_nothing_shows_which_marks_are_wrong_before_all_are_given(works: Class, together: bool) -> None:
    """They could be corrected, and would count as blind."""
    school = works.school
    works.draw(50, together=together, share=0.2, confidence=0.8)
    *levels, (last, criterion) = works.drawn_levels()
    bad = next(one for one, _ in levels if one != last)
    for one, name in levels:
        works.mark_level(one, name, 0 if one == bad else 3)
    state = school.client().get(
        f"/api/v1/assignments/{school.assignment}/guarantee", headers=school.token("teacher", "read")
    )
    assert (state.json["proven"], state.json["ready"]) == (0, [])
    assert {one.why for one in works.proof().needs_person if one.submission_id in (bad, last)} == {
        "not_marked"
    }
    with pytest.raises(NothingProven):
        works.release()
    works.mark_level(last, criterion)
    proof = works.proof()
    assert proof.proven
    assert bad not in proof.proven
    works.change(lambda session, one: release_samples.draw_more(session, one, 2, works.actor()))
    assert set(works.proof().proven) <= set(proof.proven)  # by the first draw, which is marked


def test_wrong_levels_of_a_sample_of_levels_stay_wrong(works: Class) -> None:
    """One that is found wrong is named; those deleted or regraded count, and more can be drawn."""
    works.draw(60, together=True, share=0.2, confidence=0.8)
    levels = works.drawn_levels()
    bad, name = levels[0]
    for one, criterion in levels:
        works.mark_level(one, criterion, 0 if one == bad else 3)
    proof = works.proof()
    assert proof.proven
    assert bad not in proof.proven
    (named,) = (one for one in proof.needs_person if one.submission_id == bad)
    assert (named.why, proof.criteria[0].drawn + proof.criteria[1].drawn) == ("differs", 60)
    assert sum(one.wrong for one in proof.criteria) == sum(one == bad for one, _ in levels)
    works.mark_level(bad, name)  # now that the page says which one differs
    assert works.proof().sample.seen == 1
    works.change(lambda session, one: release_samples.draw_more(session, one, 10, works.actor()))
    further = [one for one in works.drawn_levels() if one not in levels]
    assert len(further) == 10
    assert len(works.proof().needs_person) + len(works.proof().proven) == CLASS
    before = works.drawn_levels()
    works.change(lambda session, _assignment: delete_submissions(session, [bad, further[0][0]]))
    with works.school.store.read() as session:
        sample = release_samples.find_open(session, works.school.assignment)
        assert sample is not None
        draws = release_samples.load_sample(session, sample).draws
    assert [len(one.keys) for one in draws] == [60, 10]
    gone = sum(one in (bad, further[0][0]) for one, _ in before)
    assert sum(key.startswith("deleted/") for one in draws for key in one.keys) == gone


@pytest.mark.parametrize(
    ("level", "person", "highest", "tolerance", "wrong"),
    [
        (3, 4, 4, 1, False),
        (2.5, 4, 4, 1, True),
        (0, 1, 1, 1, True),  # nothing would ever be wrong on a scale of two levels
        (0, 0.5, 1, 1, False),
        (1, 2, 2, 1, False),
        (0, 2, 2, 2, True),
        (0, 2, 4, 2, False),
        (3, 2.9, 4, 0, True),
    ],
)
def test_how_far_is_too_far(level: float, person: float, highest: int, tolerance: int, wrong: bool) -> None:
    assert too_far(level, person, highest, tolerance) is wrong
    marks = Marks({("round", "load"): [person]}, frozenset(), {"load": highest})
    member = Member("one", "round", {}, {"load": level}, True)
    assert marks.wrong(member, "load", tolerance) is wrong


def test_a_mark_that_is_corrected_after_the_result_is_not_blind(works: Class) -> None:
    school = works.school
    client, token = school.client(), school.token("teacher", "read")
    at = f"/api/v1/assignments/{school.assignment}/guarantee"

    def wrong() -> list[Any]:
        return [one["wrong"] for one in client.get(at, headers=token).json["criteria"]]

    works.draw()
    drawn = works.drawn()
    works.mark(drawn[1:])
    works.mark(drawn[1:2], load=0)
    works.mark(drawn[1:2])  # while others are to be marked, a slip is put right
    assert wrong() == [None, None]
    works.mark(drawn[:1], load=0)
    assert wrong() == [1, 0]
    one = f"/assignments/{school.assignment}/review/sample/load/submissions/{drawn[0]}"
    assert "it does not count as blind" in school.client("teacher").get(one).get_data(as_text=True)
    works.mark(drawn[:1])  # now that the page says which one differs
    named = {one.submission_id: (one.why, one.criteria) for one in works.proof().needs_person}
    assert named[drawn[0]] == ("not_blind", ("Loads the data",))
    works.mark(drawn[:1], who="grader")
    assert wrong() == [0, 0]
    assert len(works.proof().proven) == CLASS


def test_marks_that_are_not_blind_do_not_count(works: Class) -> None:
    works.draw()
    drawn = works.drawn()

    works.change(lambda session, _assignment: level_views.record(session, works.actor(), drawn))
    works.mark(drawn)
    proof = works.proof()
    assert proof.sample is not None
    assert proof.sample.seen == SAMPLE
    assert not proof.proven
    assert {one.why for one in proof.needs_person if one.submission_id in drawn} == {"not_blind"}
    assert [(one.marked, one.wrong, one.seen) for one in proof.criteria] == [(0, 0, SAMPLE)] * 2
    page = works.page()
    assert f"{SAMPLE} of them were marked by someone who had seen" in page
    assert "marked only by people who had seen the levels" in page
    following = f"/assignments/{works.school.assignment}/review/sample/load/next"
    assert following in page
    assert works.school.client("teacher").get(following).headers["Location"] == works.path
    first = works.school.client("grader").get(following).headers["Location"]  # who had not seen them
    assert first.endswith(f"/review/sample/load/submissions/{drawn[0]}")
    works.mark(drawn, who="grader")
    assert len(works.proof().proven) == CLASS


def test_too_few_marks_prove_nothing(works: Class) -> None:
    works.draw(5)
    works.mark(works.drawn())
    assert not works.proof().proven
    assert "5 marked submissions are too few to prove anything" in works.page()
    more = lambda session, one: release_samples.draw_more(session, one, SAMPLE, works.actor())  # noqa: E731
    works.change(more)
    with pytest.raises(StillToMark):
        works.change(more)
    works.mark(works.drawn()[5:])
    proof = works.proof()
    assert proof.sample is not None
    assert proof.sample.drawn == SAMPLE + 5
    assert len(proof.proven) > SAMPLE


def test_release_is_written_down_and_undone(works: Class) -> None:
    works.draw()
    works.mark(works.drawn())
    teacher, stamp = works.school.client("teacher"), works.proof().stamp
    assert post(teacher, f"{works.path}/release", seen="other").status_code == 409
    assert post(works.school.client("grader"), f"{works.path}/release", seen=stamp).status_code == 403
    assert post(teacher, f"{works.path}/release", seen=stamp).status_code == 303
    assert works.proof().ready == ()
    (detail,) = audited(works.school, "guarantee.release")
    assert detail["count"] == CLASS
    assert "at most 5 % of the released levels" in detail["text"]
    assert works.proof().releases[0].still == CLASS
    table = teacher.get(f"/courses/{works.school.course}/grades.csv?assignment={works.school.assignment}")
    assert table.get_data(as_text=True).count("at most 5 % of the released levels") == CLASS
    with works.school.store.read() as session:
        assignment = session.get_one(tables.Assignment, works.school.assignment)
        said = release_records.record(session, assignment)
    assert f"{CLASS} grades released as proven, {CLASS} of them still released." in said
    assert works.drawn()[0] in said
    assert undo(teacher, works.path).status_code == 303
    assert works.proof().releases[0].still == 0
    assert len(works.proof().ready) == CLASS
    assert post(teacher, f"{works.path}/release", seen=stamp).status_code == 303


def test_the_api_reads_and_releases(works: Class) -> None:
    school = works.school
    client, token = school.client(), school.token("teacher", "read", "grade")
    at = f"/api/v1/assignments/{school.assignment}/guarantee"
    assert client.get(at, headers=token).json["sampled"] == 0
    works.draw()
    works.mark(works.drawn())
    found = client.get(at, headers=token).json
    assert (found["proven"], found["taken_back"], len(found["criteria"])) == (CLASS, [], 2)
    assert found["unread"] == CLASS - SAMPLE
    refused = client.post(f"{at}/release", json={"stamp": "other"}, headers=token)
    assert (refused.status_code, refused.json["code"]) == (409, "proof_changed")
    done = client.post(f"{at}/release", json={"stamp": found["stamp"]}, headers=token)
    assert done.json == {"count": CLASS}


def test_of_two_releases_one_wins(works: Class) -> None:
    works.draw()
    works.mark(works.drawn())
    stamp, both = works.proof().stamp, Barrier(2)

    def release(_number: int) -> int:
        both.wait()
        try:
            return int(
                works.change(
                    lambda session, one: guarantees.release_proven(session, one, stamp, works.actor())
                )
            )
        except NothingProven:
            return 0

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(release, range(2))) == [0, CLASS]


def test_a_round_that_was_graded_meanwhile_is_not_released(
    works: Class, monkeypatch: pytest.MonkeyPatch
) -> None:
    works.draw()
    works.mark(works.drawn())
    plain = release.release_rounds

    def late(session: Any, *which: Any) -> int:
        # as on PostgreSQL, where another transaction may commit between the proof and its release
        old = session.query(tables.Round).filter_by(submission_id=works.submissions[0]).one()
        old.current = False
        session.flush()
        return plain(session, *which)

    monkeypatch.setattr(release, "release_rounds", late)
    with pytest.raises(ProofChanged):
        works.release()
    assert len(works.proof().ready) == CLASS


def test_a_wrong_mark_cannot_be_dropped_by_holding_its_grade(works: Class) -> None:
    works.draw()
    drawn = sorted(works.drawn())  # with equal scores, the order of the candidates
    works.mark(drawn[2:])
    works.mark(drawn[:2], think=0)
    assert not works.proof().proven

    def hold(session: Any, _assignment: Any) -> None:
        for grade in session.query(tables.Grade).filter(tables.Grade.submission_id.in_(drawn[:2])):
            grade.held = True

    works.change(hold)
    assert not works.proof().proven


def test_a_wrong_mark_cannot_be_dropped_by_deleting_its_submission(works: Class) -> None:
    works.draw()
    drawn = works.drawn()
    works.mark(drawn[2:])
    works.mark(drawn[:2], think=0)
    works.change(lambda session, _assignment: delete_submissions(session, drawn[:2]))
    proof = works.proof()
    assert (proof.proven, proof.reason) == ((), Reason.FOUND_WRONG)


@pytest.mark.parametrize("together", [True, False])
def test_what_people_graded_everywhere_before_the_draw_needs_no_proof(works: Class, together: bool) -> None:
    """After it, a criterion would be left out for what the sample shows of it."""
    works.draw(together=together)
    for one, criterion in works.drawn_levels():
        works.mark_level(one, criterion, 0 if criterion == "think" else 3)
    assert not works.proof().proven

    def regrade(session: Any, _assignment: Any) -> None:
        for one in works.submissions:
            grade = session.query(tables.Grade).filter_by(submission_id=one).one()
            edits.record_change(session, grade, Change(kind="confirm", target="think"), works.actor("grader"))

    works.change(regrade)
    assert not works.proof().proven
    works.draw(together=together)
    levels = works.drawn_levels()
    assert {name for _, name in levels} == {"load"}
    assert [(one.id, one.by_person) for one in works.proof().criteria] == [("load", False), ("think", True)]
    assert "graded by people" in works.page("grader")


def test_only_the_criteria_of_the_sample_are_shown(works: Class) -> None:
    """Those of a report by another rubric are not among what people graded before the draw."""
    works.draw(5)
    made = given(3, 4.5)
    first, *others = made.criteria
    renamed = first.model_copy(update={"criterion": "old", "title": "Of another rubric"})
    works.add(1, made.model_copy(update={"criteria": (renamed, *others)}))
    criteria = [(one.id, one.title, one.by_person) for one in works.proof().criteria]
    assert criteria == [("load", "Loads the data", False), ("think", "Thinks about it", False)]


def test_a_round_that_another_transaction_replaces_meanwhile_comes_last(
    works: Class, monkeypatch: pytest.MonkeyPatch
) -> None:
    (gone, *_) = works.submissions
    plain = confidence.scores

    def without(session: Any, *which: Any) -> dict[tuple[str, str], float]:
        theirs = select(tables.Round.id).where(tables.Round.submission_id == gone)
        replaced = set(session.scalars(theirs))
        return {key: value for key, value in plain(session, *which).items() if key[0] not in replaced}

    monkeypatch.setattr(confidence, "scores", without)
    assert works.proof().gains
    works.draw()
    with works.school.store.read() as session:
        sample = release_samples.find_open(session, works.school.assignment)
        assert sample is not None
        member = release_samples.load_sample(session, sample).members[gone]
    assert set(member.scores.values()) == {1.0}


@pytest.mark.parametrize(
    ("path", "left"),
    [
        ("/submissions/{one}/review", CLASS - 1),
        ("/api/v1/submissions/{one}/result", CLASS - 1),  # by a token of the same person
        ("/assignments/{assignment}/review/criteria/load", CLASS - 50),  # as many as a page lists
        ("/assignments/{assignment}/review/criteria/load?blind=1", CLASS),
        ("/courses/{course}/grades.csv?assignment={assignment}", CLASS),
        ("/courses/{course}/grades.csv?assignment={assignment}&criteria=on", 0),
        ("/assignments/{assignment}/everything.zip", 0),
        ("/assignments/{assignment}/results.zip", 0),
    ],
)
def test_only_unread_work_is_drawn(works: Class, path: str, left: int) -> None:
    school = works.school
    header = school.token("teacher", "read") if path.startswith("/api") else {}
    client = school.client(None if header else "teacher")
    names = {"one": works.submissions[0], "assignment": school.assignment, "course": school.course}
    answer = client.get(path.format(**names), headers=header)
    assert answer.status_code == 200
    answer.close()  # views are recorded after the response
    if not left:
        with pytest.raises(NothingToDraw):
            works.draw()
        return
    works.draw(1)
    proof = works.proof()
    assert proof.sample is not None
    assert proof.sample.size == left


def test_marking_by_criterion_hides_and_leads_on(works: Class) -> None:
    works.draw(2)
    grader = works.school.client("grader")
    at = f"/assignments/{works.school.assignment}/review/sample"
    first = grader.get(f"{at}/load/next").headers["Location"]
    page = grader.get(first).get_data(as_text=True)
    assert "Sample, 1 of 2" in page
    assert "Student 0" not in page  # neither names nor what graded it
    assert "reads a file" not in page
    assert "btn-outline-secondary here" not in page
    assert post(grader, first, level="9").status_code == 422
    second = post(grader, first, level="3").headers["Location"]
    assert second != first
    then = post(grader, second, level="3").headers["Location"]
    assert then.endswith("/think/next")
    for _number in range(2):
        here = grader.get(then).headers.get("Location", then)
        then = post(grader, here, level="3").headers["Location"]
    assert then == works.path
    with works.school.store.read() as session:
        assert {(one.criterion, one.blind) for one in session.query(tables.Mark)} == {
            ("load", True),
            ("think", True),
        }
    beyond = next(one for one in works.submissions if one not in works.drawn())
    assert grader.get(f"{at}/load/submissions/{beyond}").status_code == 404
    assert works.proof().marks == 2
    works.change(publish)  # the sample is of the rubric before
    assert post(grader, first, level="4").headers["Location"] == works.path


def test_forms_are_checked(works: Class) -> None:
    teacher = works.school.client("teacher")
    for form in (
        {},
        {"submissions": "0"},
        {"scope": "none"},
        {"share": "0.9"},
        {"share": "nan"},
        {"tolerance": "7"},
    ):
        sent = {**FORM, **form}
        sent = sent if form else {}
        assert post(teacher, f"{works.path}/sample", **sent).status_code == 422
    assert post(teacher, f"{works.path}/sample/more", count="5").status_code == 404
    sent = FORM
    assert post(works.school.client("grader"), f"{works.path}/sample", **sent).status_code == 303
    again = post(works.school.client("grader"), f"{works.path}/sample", **sent)  # the same form, sent twice
    assert again.status_code == 409
    assert "A sample was drawn since the page was loaded" in again.get_data(as_text=True)
    shown = re.search(r'name="shown" value="(\w+)"', works.page())
    assert shown is not None
    grader = works.school.client("grader")  # must not spend what is left of the allowed risk
    assert post(grader, f"{works.path}/sample", **sent, shown=shown[1]).status_code == 403
    assert "Draw at random" not in works.page("grader")
    assert post(teacher, f"{works.path}/sample", **sent, shown=shown[1]).status_code == 303
    assert re.search(r"0 / 5", works.page())
    assert report().points is not None
