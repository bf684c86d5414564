"""Grading again: re-runs by the machines as batch work, and requests by students."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Annotated, Literal

from flask import url_for
from pydantic import BaseModel, Field

from app.api.fields import Reason, RequestModel, SubmissionId, Whole
from app.api.guards import anybody, of_assignment, of_request, of_rerun, of_submission
from app.api.paging import Page, Paged, cut, number
from app.api.resources.grades import Points
from app.api.routes import Call, get, post
from app.experiments import dry_runs as pages
from app.review import regrade_requests as answering
from app.web import auth
from app.web.services import services
from grading.domain.errors import GraderError
from grading.domain.messages import define_message
from grading.store import tables
from grading.store.assignments import versions
from grading.store.experiments import dry_runs
from grading.store.experiments.dry_runs import DryRunEntry
from grading.store.review import regrade_requests as regrade_store
from grading.store.review.regrade_requests import Verdict
from grading.store.views import regrade_requests as regrade_views
from grading.store.views import submission
from grading.store.views.submission import SubmissionView

WHICH_OR_SUBMISSIONS = define_message(
    "regrades_api.which_or_submissions", "Send either `which` or `submissions`."
)

ASSIGNMENT = "/assignments/<int:assignment_id>"
RERUN = "/reruns/<dry_run_id>"
REQUEST = "/regrades/<int:request_id>"
Words = Annotated[str, Field(min_length=1, max_length=regrade_store.LONGEST, pattern=r"^[^\x00]*$")]


class NotAnswerable(GraderError):
    """This regrade request cannot be sent or answered with these values."""

    code = "regrade_refused"
    status = 422
    default_message = define_message(
        "error.not_answerable", "This regrade request cannot be sent or answered with these values."
    )


class RerunWanted(RequestModel):
    """The submissions to regrade automatically, with the rubric in use."""

    which: Literal["latest", "all"] | None = Field(
        default=None, description="the latest submission of each student, or all", examples=["latest"]
    )
    submissions: Annotated[list[SubmissionId], Field(min_length=1, max_length=500)] | None = Field(
        default=None, description="IDs of submissions, instead of `which`"
    )


class RerunBegun(BaseModel):
    """The queued regrade, with batch priority."""

    id: str = Field(description="the ID", examples=["51de90c4"])
    submissions: int = Field(description="the number of submissions to regrade", examples=[27])
    url: str = Field(description="the URL of the new object", examples=["/api/v1/reruns/51de90c4"])


class Rerun(BaseModel):
    """The progress of a regrade. Complete new grades replace the old ones automatically."""

    id: str = Field(description="the ID", examples=["51de90c4"])
    purpose: str = Field(
        description="`rerun` (regrade); or started on the pages: `try` (test run) or `rubric` (dry run)",
        examples=["rerun"],
    )
    version: int = Field(description="the version of the rubric", examples=[4])
    by: str = Field(description="the name of the person who started it", examples=["Tom Tan"])
    created_at: datetime = Field(description="when it started")
    total: int = Field(description="the number of submissions", examples=[27])
    ended: int = Field(description="the number of finished submissions", examples=[12])
    applied_at: datetime | None = Field(description="when its results were applied; `null` if they were not")
    discarded_at: datetime | None = Field(description="when it was canceled; `null` if it was not")


class RerunState(BaseModel):
    """The new state."""

    id: str = Field(description="the ID", examples=["51de90c4"])
    state: str = Field(description="`discarded`", examples=["discarded"])


class Reruns(BaseModel):
    """The latest 25."""

    items: list[Rerun] = Field(description="the regrades")


class RequestFilter(Paged):
    """Filters of the list."""

    course: Whole | None = Field(default=None, description="the ID of the course")
    state: Literal["open", "accepted", "declined", "withdrawn"] | None = Field(
        default=None, description="the status"
    )


class RegradeWanted(RequestModel):
    """A new regrade request."""

    reason: Reason = Field(
        description="at least 10 characters", examples=["The second file is read in line 12."]
    )
    criterion: Annotated[str, Field(max_length=80, pattern=r"^[^\x00]*$")] = Field(
        default="", description="the ID of the criterion; empty: the entire grade", examples=["load"]
    )


class RegradeAsked(BaseModel):
    """The open request."""

    id: int = Field(description="the ID", examples=[8])
    url: str = Field(description="the URL of the new object", examples=["/api/v1/regrades/8"])


class Regrade(BaseModel):
    """A regrade request with its response."""

    id: int = Field(description="the ID", examples=[8])
    submission_id: str = Field(description="the ID of the submission", examples=["4f0c2d91"])
    course_id: int = Field(description="the ID of the course", examples=[3])
    assignment_id: int = Field(description="the ID of the assignment", examples=[12])
    student_id: int = Field(description="the ID of the student's account", examples=[17])
    student: str = Field(description="the name of the student", examples=["Ada Lovelace"])
    criterion: str = Field(description="the ID of the criterion; empty: the entire grade", examples=["load"])
    reason: str = Field(
        description="what the student wrote", examples=["The second file is read in line 12."]
    )
    state: str = Field(description="`open`, `accepted`, `declined` or `withdrawn`", examples=["open"])
    answer: str = Field(description="the response; empty while it is open", examples=[""])
    answered_by: str = Field(
        description="the name of the person who answered; empty while it is open", examples=[""]
    )
    created_at: datetime = Field(description="when it was sent")
    answered_at: datetime | None = Field(description="when it was answered; `null` while it is open")


class AnswerGiven(RequestModel):
    """The decision of staff."""

    verdict: Verdict = Field(
        description="`declined`, changed `points`, or regraded automatically (`again`)", examples=["points"]
    )
    words: Words = Field(description="the message to the student", examples=["You are right."])
    points: Points | None = Field(
        default=None,
        description="the points of the criterion, or the points added to the total",
        examples=[4],
    )


class RegradeState(BaseModel):
    """The new state."""

    id: int = Field(description="the ID", examples=[8])
    state: str = Field(description="`accepted`, `declined` or `withdrawn`", examples=["accepted"])


@post(f"{ASSIGNMENT}/reruns", of_assignment("rerun"), status=202)
def begin_rerun(call: Call, about: tables.Assignment, body: RerunWanted) -> RerunBegun:
    """Regrade submissions with batch priority and the rubric in use."""
    if (body.which is None) == (body.submissions is None):
        raise NotAnswerable(WHICH_OR_SUBMISSIONS)
    version = versions.published_version(call.session, about)
    chosen = dry_runs.select_submissions(call.session, about.id, body.which or body.submissions or ())
    begun = dry_runs.start_dry_run(call.session, about, version, chosen, "rerun", call.actor)
    for one in begun.round_ids[: pages.AT_ONCE]:
        call.after.append(partial(services().dispatch.announce, one))
    url = call.headers["Location"] = url_for("api.rerun", dry_run_id=begun.dry_run_id)
    return RerunBegun(id=begun.dry_run_id, submissions=len(begun.round_ids), url=url)


@get(f"{ASSIGNMENT}/reruns", of_assignment("rerun.see"))
def reruns(call: Call, about: tables.Assignment) -> Reruns:
    """List regrades, test runs and dry runs of an assignment, newest first."""
    return Reruns(items=[_line(one) for one in dry_runs.list_dry_runs(call.session, about.id)])


@get(RERUN, of_rerun("rerun.see"))
def rerun(call: Call, about: tuple[tables.DryRun, tables.Assignment]) -> Rerun:
    """Get the progress of a regrade."""
    run, assignment = about
    return _line(dry_runs.list_dry_runs(call.session, assignment.id, run.id)[0])


@post(f"{RERUN}/discard", of_rerun("rerun"))
def discard_rerun(call: Call, about: tuple[tables.DryRun, tables.Assignment]) -> RerunState:
    """Cancel a regrade. Pending gradings do not start, and no more results are applied."""
    dry_runs.discard_dry_run(call.session, about[0].id, call.actor)
    return RerunState(id=about[0].id, state="discarded")


@get("/regrades", anybody("read"))
def regrade_requests(call: Call, query: RequestFilter) -> Page[Regrade]:
    """List regrade requests, newest first: of courses where you are staff, and your own."""
    found = regrade_views.list_below(
        call.session,
        call.actor.staff_courses,
        call.actor.user_id,
        course_id=query.course,
        state=query.state,
        below=number(query),
        limit=query.limit + 1,
    )
    items, address = cut(call, query, found, lambda one: (one.id,))
    return Page(items=[_regrade(one) for one in items], next=address)


@get(REQUEST, of_request("regrade.see"))
def regrade(call: Call, about: regrade_views.Request) -> Regrade:
    """Get a regrade request and its response."""
    return _regrade(about)


@post("/submissions/<id>/regrades", of_submission("regrade.ask"), status=201)
def ask_regrade(call: Call, about: SubmissionView, body: RegradeWanted) -> RegradeAsked:
    """Request a regrade of your own released grade."""
    reason = body.reason.strip()
    if problem := answering.reason_refused(reason):
        raise NotAnswerable(problem)
    made = regrade_store.create_request(call.session, call.actor, about.id, body.criterion, reason)
    url = call.headers["Location"] = url_for("api.regrade", request_id=made)
    return RegradeAsked(id=made, url=url)


@post(f"{REQUEST}/withdraw", of_request("regrade.ask"))
def withdraw_regrade(call: Call, about: regrade_views.Request) -> RegradeState:
    """Withdraw your own regrade request."""
    regrade_store.withdraw_request(call.session, call.actor, about.id)
    return RegradeState(id=about.id, state="withdrawn")


@post(f"{REQUEST}/answer", of_request("regrade.answer"))
def answer_regrade(call: Call, about: regrade_views.Request, body: AnswerGiven) -> RegradeState:
    """Answer a regrade request: decline it, change points, or regrade the submission."""
    view = submission.load_view(call.session, about.submission_id)
    answered, problem = answering.checked(about, view, body.verdict, body.words.strip(), body.points)
    if answered is None:
        raise NotAnswerable(problem)
    if answered.verdict == "again":
        auth.require(call.actor, "rerun", auth.subject_of(view))
    new = regrade_store.answer_request(call.session, call.actor, about.id, answered)
    if new is not None:
        call.after.append(partial(services().dispatch.announce, new))
    return RegradeState(id=about.id, state="declined" if answered.verdict == "declined" else "accepted")


def _line(one: DryRunEntry) -> Rerun:
    return Rerun.model_validate(one, from_attributes=True)


def _regrade(one: regrade_views.Request) -> Regrade:
    return Regrade.model_validate(one.model_dump(include=set(Regrade.model_fields)))
