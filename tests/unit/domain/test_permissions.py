from __future__ import annotations

import pytest

from grading.domain.permissions import RULES, SCOPES, Actor, Subject, may

COURSE, OTHER = 1, 2
ADMIN = Actor(1, administrator=True)
TEACHER = Actor(2, roles={COURSE: "instructor"})
GRADER = Actor(3, roles={COURSE: "grader"})
ANNA = Actor(4, roles={COURSE: "student"})
BEN = Actor(5, roles={COURSE: "student"})
STRANGER = Actor(6, roles={OTHER: "instructor"})
EVERYBODY = (ADMIN, TEACHER, GRADER, ANNA, BEN, STRANGER)
WAITING = Subject(COURSE, owner_id=4)
RELEASED = Subject(COURSE, owner_id=4, released=True)


@pytest.mark.parametrize(
    ("action", "subject", "allowed"),
    [
        ("assignment.see", Subject(COURSE), {1, 2, 3, 4, 5}),
        ("submit", WAITING, {1, 2, 3, 4}),
        ("submit.for_others", Subject(COURSE), {1, 2, 3}),
        ("submit.enrols", Subject(COURSE), {1, 2}),
        ("submit.class", Subject(COURSE), {1, 2}),
        ("submission.see", WAITING, {1, 2, 3, 4}),
        ("score.see", WAITING, {1, 2, 3}),
        ("score.see", RELEASED, {1, 2, 3, 4}),
        ("faults.see", RELEASED, {1, 2, 3}),
        ("tests.see_all", RELEASED, {1, 2, 3}),
        ("prompt.see", RELEASED, {1, 2, 3}),
        ("grade.release", WAITING, {1, 2}),
        ("machines.see", Subject(), {1, 2, 3, 6}),
        ("chat", Subject(), {1, 2, 3, 6}),
        ("tokens.own", Subject(), {1, 2, 3, 4, 5, 6}),
        ("administer", Subject(), {1}),
        ("course.create", Subject(), {1}),
        ("course.see", Subject(COURSE), {1, 2, 3, 4, 5}),
        ("rubric.see", Subject(COURSE), {1, 2, 3}),
        ("rerun.see", Subject(COURSE), {1, 2}),
        ("regrade.see", RELEASED, {1, 2, 3}),
        ("regrade.ask", RELEASED, {4}),
        ("regrade.ask", WAITING, set()),
        ("anything else", WAITING, set()),
    ],
)
def test_who_may_what(action: str, subject: Subject, allowed: set[int]) -> None:
    assert {actor.user_id for actor in EVERYBODY if may(actor, action, subject)} == allowed


def test_owning_something_in_no_course_of_mine_is_not_enough_to_submit() -> None:
    assert not may(ANNA, "submit", Subject(OTHER, owner_id=ANNA.user_id))


@pytest.mark.parametrize("action", sorted(RULES))
def test_tokens_do_only_what_their_scopes_say(action: str) -> None:
    scope, _ = RULES[action]
    subject = Subject(COURSE, owner_id=1, released=True)
    for given in SCOPES:
        token = Actor(1, administrator=True, scopes=frozenset({given}), token_id=9)
        assert may(token, action, subject) == (scope is not None and given in (scope, "admin"))
    none = Actor(1, administrator=True, scopes=frozenset(), token_id=9)
    assert not may(none, action, subject)
