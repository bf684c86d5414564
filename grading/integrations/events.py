"""Every message between Grader and other systems as a value: JSON schemas and examples come from here."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

from grading.domain.messages import define_message

PRINTABLE = r"^[^\x00-\x1f\x7f]+$"
SUBMISSION = "b2c1f0c7e4d94bb6a3f0a5a0c9a4d1de"
HOST = "https://grader.school.example"


def _storable(text: str) -> str:
    """NUL and lone surrogates are in no name, and no database takes them."""
    if "\0" in text or any("\ud800" <= c <= "\udfff" for c in text):
        raise ValueError("has characters that cannot be kept")
    return text


def _without_nul(given: Any) -> Any:
    """A name is not worth a submission that is refused."""
    return given.replace("\0", "") if isinstance(given, str) else given


Text = Annotated[str, Field(max_length=200), BeforeValidator(_without_nul), AfterValidator(_storable)]
LmsId = Annotated[str, Field(max_length=200, pattern=PRINTABLE), AfterValidator(_storable)]
CourseSlug = Annotated[str, Field(max_length=64, pattern=r"^[a-z0-9][a-z0-9-]*$")]
Slug = Annotated[str, Field(max_length=64, pattern=r"^[a-z0-9][a-z0-9_.-]*$")]


class Part(BaseModel):
    """A part of a message; fields that are not known are passed over, so that senders may add some."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Student(Part):
    """Who submitted, as the learning system knows them."""

    id: LmsId
    name: Text = ""
    email: Text = ""


class File(Part):
    """A file of the submission: its content, or an address to get it from."""

    name: Annotated[str, Field(min_length=1, max_length=400), AfterValidator(_storable)]
    content_base64: str | None = None
    url: Annotated[str, Field(min_length=1, max_length=2000)] | None = None
    """Asked once, while the message is taken; see docs/reference/webhooks.md for what is allowed."""

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.content_base64 is None) == (self.url is None):
            raise ValueError("give each file either content_base64 or url")
        return self


class Submitted(Part):
    """What was submitted."""

    assignment: LmsId = Field(max_length=130, description="`course/assignment`")
    student: Student
    files: tuple[File, ...] = Field(min_length=1, max_length=1000)
    priority: Literal["interactive", "batch"] = "interactive"


class Member(Student):
    """Somebody in a course."""

    role: Literal["student", "grader", "instructor"] = "student"


class Roster(Part):
    """People who come into a course or have another role, name or address now, and those who leave."""

    course: CourseSlug
    members: tuple[Member, ...] = Field(default=(), max_length=2000)
    removed: tuple[LmsId, ...] = Field(default=(), max_length=2000)
    """Ids of those who leave; their submissions stay."""


class Assigned(Part):
    """An assignment of the learning system; one that is not known here yet is made, without a rubric."""

    course: CourseSlug
    slug: Slug
    title: Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_storable)]
    due_at: AwareDatetime | None = None
    """Left out: stays as it is. Null: none."""


class News(Part):
    """What became of a submission. Never a score nor a name: the links show them to whom may see them."""

    submission: str = Field(description="the id of the submission")
    status: str = Field(description="the last word of the type")
    link: str = Field(description="the page of the submission")
    api: str = Field(description="the same for programs with a token")


class Message(BaseModel):
    """What every message has."""

    model_config = ConfigDict(extra="ignore", frozen=True)
    type: str = Field(description="the type of the event")


class SubmissionCreated(Message):
    """To Grader: a student submitted."""

    type: Literal["submission.created"]
    data: Submitted


class RosterUpdated(Message):
    """To Grader: who is in a course."""

    type: Literal["roster.updated"]
    data: Roster


class AssignmentUpserted(Message):
    """To Grader: an assignment is new, or has another title or date."""

    type: Literal["assignment.upserted"]
    data: Assigned


class Event(Message):
    """An event from Grader about a submission or its grade."""

    timestamp: datetime = Field(description="the time of the event")
    data: News = Field(description="the subject of the event")


NO_SUCH_RECEIVER = define_message(
    "events.no_such_receiver", "This receiver is not in server.event_receivers of config.toml."
)
NO_SUCH_EVENT = define_message("events.no_such_event", "There is no event of this type.")
EVENTS = {
    "submission.received": define_message(
        "events.submission_received", "A submission was stored and will be graded."
    ),
    "submission.completed": define_message(
        "events.submission_completed", "All parts of a submission are graded."
    ),
    "submission.partial": define_message(
        "events.submission_partial", "Part of a submission could not be graded. A person must review it."
    ),
    "submission.failed": define_message(
        "events.submission_failed", "A submission could not be graded. A person must review it."
    ),
    "grade.released": define_message("events.grade_released", "A grade was released to the student."),
    "grade.changed": define_message("events.grade_changed", "A released grade changed."),
    "grade.withdrawn": define_message(
        "events.grade_withdrawn", "A released grade was withdrawn. The student can no longer see it."
    ),
}
"""Types of messages from Grader, each with when it is sent."""
GRADED = {"graded": "completed", "partial": "partial", "failed": "failed"}
"""The end of a round -> the last word of the event that tells it."""

INWARD: dict[str, type[Message]] = {
    "submission.created": SubmissionCreated,
    "roster.updated": RosterUpdated,
    "assignment.upserted": AssignmentUpserted,
}
"""Types of messages to Grader; all others have no effect."""

_STUDENT = {"id": "c-77", "name": "Carla Conti", "email": "carla@school.example"}
_ASKED = "business-analytics/homework-1"
EXAMPLES: dict[str, list[dict[str, Any]]] = {
    "submission.created": [
        {
            "assignment": _ASKED,
            "student": _STUDENT,
            "files": [{"name": "homework.py", "content_base64": "cHJpbnQoMSkK"}],
            "priority": "interactive",
        },
        {
            "assignment": _ASKED,
            "student": {"id": "c-77"},
            "files": [{"name": "homework.ipynb", "url": "https://lms.school.example/files/8812?key=4f0c"}],
        },
    ],
    "roster.updated": [
        {
            "course": "business-analytics",
            "members": [
                {**_STUDENT, "role": "student"},
                {"id": "t-3", "name": "Tom Tan", "email": "tom@school.example", "role": "grader"},
            ],
            "removed": ["c-12"],
        }
    ],
    "assignment.upserted": [
        {
            "course": "business-analytics",
            "slug": "homework-1",
            "title": "Homework 1: sales",
            "due_at": "2026-11-30T22:59:00Z",
        }
    ],
}
"""Of messages to Grader, their `data`."""


def examples(kind: str) -> list[dict[str, Any]]:
    """Whole messages of a type."""
    if kind in EXAMPLES:
        return [{"type": kind, "data": data} for data in EXAMPLES[kind]]
    status = kind.rpartition(".")[2]
    at = "2026-11-20T13:05:11+00:00"
    return [{"type": kind, "timestamp": at, "data": news(HOST, SUBMISSION, status).model_dump()}]


def news(public_url: str, submission: str, status: str) -> News:
    """What is told of a submission, with links that begin with `public_url`."""
    base = public_url.rstrip("/")
    link, api = f"{base}/submissions/{submission}", f"{base}/api/v1/submissions/{submission}"
    return News(submission=submission, status=status, link=link, api=api)


def schema(kind: str) -> dict[str, Any] | None:
    """The JSON schema (2020-12) of a type of messages, with examples; nothing where there is no such type."""
    if kind in INWARD:
        made = INWARD[kind].model_json_schema()
    elif kind in EVENTS:
        made = Event.model_json_schema(mode="serialization")
        made["properties"]["type"] = {"const": kind, "type": "string"}
        made["description"] = f"From Grader: {EVENTS[kind].text}"
    else:
        return None
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **made,
        "title": kind,
        "examples": examples(kind),
    }


def kinds() -> tuple[str, ...]:
    """All types, to Grader first."""
    return (*INWARD, *EVENTS)
