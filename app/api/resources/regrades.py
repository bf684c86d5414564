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
    """What is to be graded again by the machines, with the rubric that counts now."""

    which: Literal["latest", "all"] | None = Field(
        default=None, description="the newest submission of each student, or all", examples=["latest"]
    )
    submissions: Annotated[list[SubmissionId], Field(min_length=1, max_length=500)] | None = Field(
        default=None, description="in place of `which`"
    )


class RerunBegun(BaseModel):
    """It waits behind what people wait for."""

    id: str = Field(description="its id", examples=["51de90c4"])
    submissions: int = Field(description="how many submissions are graded again", examples=[27])
    url: str = Field(description="where it can be asked for", examples=["/api/v1/reruns/51de90c4"])


class Rerun(BaseModel):
    """How far a re-run is. What was graded better than before takes its place by itself."""

    id: str = Field(description="its id", examples=["51de90c4"])
    purpose: str = Field(
        description="`rerun`; or what was begun on the pages: `try`, `rubric`", examples=["rerun"]
    )
    version: int = Field(description="of the rubric", examples=[4])
    by: str = Field(description="the name of who began it", examples=["Tom Tan"])
    created_at: datetime = Field(description="when it began")
    total: int = Field(description="how many submissions it has", examples=[27])
    ended: int = Field(description="how many of them are over", examples=[12])
    applied_at: datetime | None = Field(description="when its results counted; `null` where they do not")
    discarded_at: datetime | None = Field(description="when it was stopped; `null` where it was not")


class RerunState(BaseModel):
    """What became of it."""

    id: str = Field(description="its id", examples=["51de90c4"])
    state: str = Field(description="`discarded`", examples=["discarded"])


class Reruns(BaseModel):
    """The newest 25."""

    items: list[Rerun] = Field(description="the re-runs")


class RequestFilter(Paged):
    """Which requests a list shows."""

    course: Whole | None = Field(default=None, description="the course's number")
    state: Literal["open", "accepted", "declined", "withdrawn"] | None = Field(
        default=None, description="how far it is"
    )


class RegradeWanted(RequestModel):
    """A student asks a person to look again."""

    reason: Reason = Field(
        description="at least 10 characters", examples=["The second file is read in line 12."]
    )
    criterion: Annotated[str, Field(max_length=80, pattern=r"^[^\x00]*$")] = Field(
        default="", description="empty: the whole grade", examples=["load"]
    )


class RegradeAsked(BaseModel):
    """It waits for an answer."""

    id: int = Field(description="its number", examples=[8])
    url: str = Field(description="where it can be asked for", examples=["/api/v1/regrades/8"])


class Regrade(BaseModel):
    """A request with its answer."""

    id: int = Field(description="its number", examples=[8])
    submission_id: str = Field(description="the id of the submission", examples=["4f0c2d91"])
    course_id: int = Field(description="the number of the course", examples=[3])
    assignment_id: int = Field(description="the number of the assignment", examples=[12])
    student_id: int = Field(description="the number of who asked", examples=[17])
    student: str = Field(description="the name of who asked", examples=["Ada Lovelace"])
    criterion: str = Field(description="empty: the whole grade", examples=["load"])
    reason: str = Field(
        description="what the student wrote", examples=["The second file is read in line 12."]
    )
    state: str = Field(description="`open`, `accepted`, `declined` or `withdrawn`", examples=["open"])
    answer: str = Field(description="what staff wrote; empty while it is open", examples=[""])
    answered_by: str = Field(description="the name of who answered; empty while it is open", examples=[""])
    created_at: datetime = Field(description="when the student asked")
    answered_at: datetime | None = Field(description="when it was answered; `null` while it is open")


class AnswerGiven(RequestModel):
    """What staff decided."""

    verdict: Verdict = Field(
        description="`declined`, other `points`, or graded `again` by the machines", examples=["points"]
    )
    words: Words = Field(description="to the student", examples=["You are right."])
    points: Points | None = Field(
        default=None, description="of the criterion; or what is added to the whole grade", examples=[4]
    )


class RegradeState(BaseModel):
    """What became of it."""

    id: int = Field(description="its number", examples=[8])
    state: str = Field(description="`accepted`, `declined` or `withdrawn`", examples=["accepted"])


@post(f"{ASSIGNMENT}/reruns", of_assignment("rerun"), status=202)
def begin_rerun(call: Call, about: tables.Assignment, body: RerunWanted) -> RerunBegun:
    """Have submissions graded again as batch work, by the rubric that counts."""
    if (body.which is None) == (body.submissions is None):
        raise NotAnswerable(WHICH_OR_SUBMISSIONS)
    version = versions.published_version(call.session, about)
    chosen = dry_runs.select_submissions(call.session, about.id, body.which or body.submissions or ())
    begun = dry_runs.start_dry_run(call.session, about, version, chosen, "rerun", call.actor)
    for one in begun.round_ids[: pages.AT_ONCE]:
        call.after.append(partial(services().dispatch.announce, one))
    url = call.headers["Location"] = url_for("api.rerun", dry_run_id=begun.dry_run_id)
    return RerunBegun(id=begun.dry_run_id, submissions=len(begun.round_ids), url=url)


@get(f"{ASSIGNMENT}/reruns", of_assignment("rubric.see"))
def reruns(call: Call, about: tables.Assignment) -> Reruns:
    """Re-runs, tries and dry runs of an assignment, the newest first."""
    return Reruns(items=[_line(one) for one in dry_runs.list_dry_runs(call.session, about.id)])


@get(RERUN, of_rerun("rubric.see"))
def rerun(call: Call, about: tuple[tables.DryRun, tables.Assignment]) -> Rerun:
    """How far a re-run is."""
    run, assignment = about
    return _line(dry_runs.list_dry_runs(call.session, assignment.id, run.id)[0])


@post(f"{RERUN}/discard", of_rerun("rerun"))
def discard_rerun(call: Call, about: tuple[tables.DryRun, tables.Assignment]) -> RerunState:
    """Stop a re-run: what it did not begin is not begun, and nothing more of it will count."""
    dry_runs.discard_dry_run(call.session, about[0].id, call.actor)
    return RerunState(id=about[0].id, state="discarded")


@get("/regrades", anybody("read"))
def regrade_requests(call: Call, query: RequestFilter) -> Page[Regrade]:
    """Requests by students, the newest first: of the courses you are staff of, and your own."""
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
    """A request and its answer."""
    return _regrade(about)


@post("/submissions/<id>/regrades", of_submission("regrade.ask"), status=201)
def ask_regrade(call: Call, about: SubmissionView, body: RegradeWanted) -> RegradeAsked:
    """Ask a person to look at a released grade of one's own again."""
    reason = body.reason.strip()
    if problem := answering.reason_refused(reason):
        raise NotAnswerable(problem)
    made = regrade_store.create_request(call.session, call.actor, about.id, body.criterion, reason)
    url = call.headers["Location"] = url_for("api.regrade", request_id=made)
    return RegradeAsked(id=made, url=url)


@post(f"{REQUEST}/withdraw", of_request("regrade.ask"))
def withdraw_regrade(call: Call, about: regrade_views.Request) -> RegradeState:
    """Take one's own request back."""
    regrade_store.withdraw_request(call.session, call.actor, about.id)
    return RegradeState(id=about.id, state="withdrawn")


@post(f"{REQUEST}/answer", of_request("regrade.answer"))
def answer_regrade(call: Call, about: regrade_views.Request, body: AnswerGiven) -> RegradeState:
    """Decline a request, give other points, or have the submission graded again."""
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
