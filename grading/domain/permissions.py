"""Who may do what: one pure function that every view asks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

STAFF = frozenset({"grader", "instructor"})
SCOPES = ("submit", "read", "grade", "manage", "chat", "admin")


@dataclass(frozen=True)
class Actor:
    """Somebody who asks: a signed-in user (`scopes` is nothing) or the bearer of a user's token."""

    user_id: int
    administrator: bool = False
    roles: Mapping[int, str] = field(default_factory=dict)
    """Role by course id."""
    scopes: frozenset[str] | None = None
    token_id: int | None = None

    @property
    def name(self) -> str:
        """How the audit and idempotency keys call this actor."""
        return f"token:{self.token_id}" if self.token_id is not None else f"user:{self.user_id}"

    def staff_in(self, course_id: int | None) -> bool:
        """Whether the actor grades or teaches in this course."""
        return self.administrator or (course_id is not None and self.roles.get(course_id) in STAFF)

    @property
    def staff(self) -> bool:
        """Whether the actor is staff anywhere."""
        return self.administrator or any(role in STAFF for role in self.roles.values())

    @property
    def staff_courses(self) -> frozenset[int] | None:
        """Ids of the courses the actor is staff of; nothing means all."""
        if self.administrator:
            return None
        return frozenset(course for course, role in self.roles.items() if role in STAFF)


@dataclass(frozen=True)
class Subject:
    """What is asked about: a course, or something of a student (`owner_id`) in it.

    `members` are those who submitted together with the owner.
    """

    course_id: int | None = None
    owner_id: int | None = None
    released: bool = False
    members: tuple[int, ...] = ()


Rule = Callable[[Actor, Subject], bool]


def _member(actor: Actor, subject: Subject) -> bool:
    return actor.administrator or subject.course_id in actor.roles


def _owner(actor: Actor, subject: Subject) -> bool:
    return actor.user_id == subject.owner_id or actor.user_id in subject.members


def _staff(actor: Actor, subject: Subject) -> bool:
    return actor.staff_in(subject.course_id)


def _instructor(actor: Actor, subject: Subject) -> bool:
    return actor.administrator or (
        subject.course_id is not None and actor.roles.get(subject.course_id) == "instructor"
    )


RULES: dict[str, tuple[str | None, Rule]] = {
    # action: (scope a token needs, or nothing where tokens are of no use; rule)
    "assignment.see": ("read", _member),
    "submit": ("submit", lambda a, s: _staff(a, s) or (_owner(a, s) and _member(a, s))),
    "submit.for_others": ("submit", _staff),
    "submit.enrols": ("submit", _instructor),
    "submit.class": (None, _instructor),
    "submission.see": ("read", lambda a, s: _owner(a, s) or _staff(a, s)),
    "score.see": ("read", lambda a, s: _staff(a, s) or (_owner(a, s) and s.released)),
    "faults.see": ("read", _staff),
    "tests.see_all": ("read", _staff),
    "prompt.see": ("read", _staff),
    "grade.release": ("grade", _instructor),
    "grade.change": ("grade", _staff),
    "grade.adjust_all": (None, _instructor),
    "mark.give": (None, _staff),
    "regrade.ask": ("submit", lambda a, s: _owner(a, s) and _member(a, s) and s.released),
    "regrade.see": ("read", _staff),
    "regrade.answer": ("grade", _staff),
    "rerun": ("grade", _instructor),
    "class.see": ("read", _staff),
    "similarity.see": (None, _staff),
    "trust.see": ("read", _staff),
    "rubric.see": ("read", _staff),
    "rerun.see": ("read", _instructor),
    "assignment.change": ("manage", _instructor),
    "example.change": (None, _instructor),
    "extension.see": ("read", _instructor),
    "extension.give": ("manage", _instructor),
    "group.see": ("read", _staff),
    "group.manage": ("manage", _staff),
    "roster.see": ("read", _staff),
    "roster.change": ("manage", _instructor),
    "grades.export": ("read", _instructor),
    "grades.own": (None, lambda a, s: a.roles.get(s.course_id or 0) == "student"),
    "course.create": ("manage", lambda a, _: a.administrator),
    "course.change": ("manage", _instructor),
    "course.see": ("read", _member),
    "course.audit": (None, _instructor),
    "failed_submissions.see": (None, lambda a, _: a.staff),
    "replay": (None, _staff),
    "machines.see": ("read", lambda a, _: a.staff),
    "chat": ("chat", lambda a, _: a.staff),
    "tokens.own": (None, lambda _a, _s: True),
    "administer": ("admin", lambda a, _: a.administrator),
}


def may(actor: Actor, action: str, subject: Subject = Subject()) -> bool:
    """Whether the actor may do this to the subject. Unknown actions are refused."""
    if action not in RULES:
        return False
    scope, rule = RULES[action]
    if actor.scopes is not None and (scope is None or not actor.scopes & {scope, "admin"}):
        return False
    return rule(actor, subject)
