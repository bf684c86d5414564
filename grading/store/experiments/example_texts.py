"""The words of an example: what a student wrote and a person said, without names and without orders."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from grading.checks.manipulation import manipulation_flags
from grading.documents import Identity
from grading.documents.pseudonym import pseudonymise_texts
from grading.domain.errors import GraderError
from grading.domain.model import Cell, Document
from grading.store import tables

LONGEST = 2_000
"""Characters of an excerpt."""
LONGEST_REASON = 500


class ExampleRefused(GraderError):
    """This example cannot be used so."""

    code = "example_refused"
    status = 422


def checked_words(session: Session, submission_id: str, excerpt: str, reason: str) -> tuple[str, str]:
    """Both without the names of those who handed it in. Raises ExampleRefused."""
    kept = excerpt.replace("\r\n", "\n").replace("\0", "").strip("\n ")
    why = " ".join(reason.replace("\0", "").split())
    if not kept:
        raise ExampleRefused("An example needs an excerpt: what the student wrote.")
    if len(kept) > LONGEST:
        raise ExampleRefused(f"The excerpt has {len(kept)} characters; {LONGEST} are the most. Shorten it.")
    if len(why) > LONGEST_REASON:
        raise ExampleRefused(f"The reason has {len(why)} characters; {LONGEST_REASON} are the most.")
    if signs := manipulation_flags([as_document(kept)]):
        raise ExampleRefused(f"Take out the words that speak to the grader. {signs[0].message}")
    hidden = [kept, why]
    for identity in identities(session, submission_id):
        hidden = pseudonymise_texts(hidden, identity)
    return hidden[0], hidden[1]


def as_document(text: str) -> Document:
    """A text as if it had been handed in by itself."""
    lines = tuple(range(1, text.count("\n") + 2))
    cell = Cell(number=1, kind="markdown", source=text, language="markdown", added=lines)
    return Document(path="excerpt.md", kind="prose", language="markdown", cells=(cell,))


def identities(session: Session, submission_id: str) -> list[Identity]:
    """What is known of each who handed this in."""
    member = tables.SubmissionMember
    theirs = select(tables.Submission.student_id).where(tables.Submission.id == submission_id)
    others = select(member.user_id).where(member.submission_id == submission_id)
    users = session.scalars(
        select(tables.User).where(tables.User.id.in_(theirs.union(others))).order_by(tables.User.id)
    )
    found = []
    for user in users:
        subjects = [identity.subject for identity in user.identities]
        mails = (user.email, *(one for one in subjects if "@" in one))
        found.append(
            Identity(
                names=(user.name,) if user.name else (),
                ids=tuple(one for one in subjects if "@" not in one),
                emails=tuple(mail for mail in mails if mail),
            )
        )
    return found
