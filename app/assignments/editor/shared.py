"""What all pages for writing an assignment share: who may, what is written on, how forms are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from flask import flash, request
from markupsafe import Markup, escape
from pydantic import ValidationError
from sqlalchemy.orm import Session

from app.assignments import views
from app.web import auth, dates
from app.web.i18n import gettext as _
from app.web.i18n import later as N_
from app.web.i18n import ngettext
from app.web.services import services
from grading.assignments.editor.folder import Settings
from grading.assignments.editor.template_proposal import template
from grading.domain.errors import AssignmentError
from grading.domain.model import Document
from grading.domain.permissions import Actor, Subject
from grading.domain.rubric import Rubric
from grading.domain.rubric_errors import mistakes
from grading.store import tables
from grading.store.assignments import drafts, versions

TITLES = (
    N_("Uses the functions the task asks for"),
    N_("Makes the results"),
    N_("Complete and without errors"),
    N_("Explains what was done and why"),
)
"""Of the criteria of a template, for translators."""
ANY = "<int(max=2147483647):assignment_id>"


@dataclass(frozen=True)
class Head:
    """What stands above every page: the assignment and the version that is written on."""

    id: int
    course_id: int
    title: str
    slug: str
    course: str
    course_title: str
    visible: bool
    number: int
    """Of the newest version."""
    draft: bool
    counting: int | None
    counting_id: int | None


def seen(
    session: Session, actor: Actor, assignment_id: int, action: str = "assignment.change"
) -> tables.Assignment:
    """An assignment this reader may do that with. Raises NotFound or Forbidden."""
    found = versions.by_id(session, assignment_id)
    require(actor, found, action)
    return found


def require(actor: Actor, found: tables.Assignment, action: str) -> None:
    """Go on if this reader may do that with an assignment. Raises NotFound or Forbidden."""
    views.require_seen(actor, found)
    auth.require(actor, action, Subject(found.course_id))


def head(session: Session, assignment: tables.Assignment, now: drafts.Stand | None = None) -> Head:
    """What stands above every page of it; `now` where it is known what is written on."""
    known = now or drafts.stand(session, assignment.id)
    return Head(
        id=assignment.id,
        course_id=assignment.course_id,
        title=assignment.title,
        slug=assignment.slug,
        course=assignment.course.slug,
        course_title=assignment.course.title,
        visible=assignment.visible,
        number=known.number,
        draft=known.draft,
        counting=known.counting,
        counting_id=known.counting_id,
    )


def flash_report(report: Sequence[str]) -> None:
    """Say that there is a report of how files were read; it is too long for a message itself."""
    if report:
        said = ngettext(
            "Reading the files gave %(count)s remark; it is kept with the version, under Versions.",
            "Reading the files gave %(count)s remarks; they are kept with the version, under Versions.",
            len(report),
        )
        flash(said, "warning")


def stages() -> tuple[str, ...]:
    """The stages hand-ins can be graded by here."""
    return tuple(services().config.stages)


def zone_options(chosen: str) -> Markup:
    """All time zones to choose from."""
    return _zone_options(chosen if chosen in dates.zones() else "")


@lru_cache(maxsize=32)
def _zone_options(chosen: str) -> Markup:
    """They are hundreds, so they are written once for each that is chosen."""
    html = "".join(f"<option{' selected' * (one == chosen)}>{escape(one)}</option>" for one in dates.zones())
    return Markup(html)  # noqa: S704 - escaped


def base() -> int:
    """The version the form was made from."""
    return whole("base") or 0


def whole(name: str) -> int | None:
    """A whole number of the form or the address, if it is one."""
    text = request.form.get(name, request.args.get(name, ""))
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 10 else None


def text(name: str) -> str:
    """A text of the form, with line ends as everywhere."""
    return request.form.get(name, "").replace("\r\n", "\n")


def settings_form(settings: Settings, zone: str = "UTC") -> dict[str, Any]:
    """The fields of the settings' form."""
    late = settings.late
    return {
        "title": settings.title,
        "slug": settings.slug,
        "language": settings.language,
        "zone": zone,
        "due": _local(settings.due),
        "release": settings.release,
        "release_at": _local(settings.release_at),
        "grace_minutes": str(late.grace_minutes),
        "per_day": f"{100 * late.per_day:g}",
        "at_least": f"{100 * late.at_least:g}",
        "days": "" if late.days is None else str(late.days),
        "max_hand_ins": "" if settings.max_hand_ins is None else str(settings.max_hand_ins),
        "group_size": str(settings.group_size),
        "counts": settings.counts,
        "visible": "yes" if settings.visible else "",
    }


def _local(moment: Any) -> str:
    return f"{moment:%Y-%m-%dT%H:%M}" if moment else ""


def read_settings(known: Settings | None = None) -> Settings:
    """The settings a form says. Raises AssignmentError with the field's name first, BadDate.

    `known` are those of now: a moment that was not touched keeps its seconds.
    """
    form = request.form
    data: dict[str, Any] = {
        "title": form.get("title", "").strip(),
        "slug": form.get("slug", "").strip(),
        "language": form.get("language", ""),
        "due": _moment("due", known.due if known else None),
        "release": form.get("release", "after_review"),
        "release_at": _moment("release_at", known.release_at if known else None),
        "late": {
            "grace_minutes": form.get("grace_minutes", "").strip() or 0,
            "per_day": _part("per_day"),
            "at_least": _part("at_least"),
            "days": form.get("days", "").strip() or None,
        },
        "max_hand_ins": form.get("max_hand_ins", "").strip() or None,
        "group_size": form.get("group_size", "").strip() or 1,
        "counts": form.get("counts", "latest"),
        "visible": bool(form.get("visible")),
    }
    if data["release"] != "at":
        data["release_at"] = None
    return checked(data)


def checked(data: dict[str, Any]) -> Settings:
    """Settings from JSON. Raises AssignmentError with the field's name first."""
    try:
        return Settings.model_validate(data)
    except ValidationError as error:
        place, words = mistakes(error, Settings)[0]
        raise AssignmentError(f"{place}: {words}" if place else words) from error


def _moment(name: str, known: Any) -> Any:
    typed = request.form.get(name, "")
    if not typed.strip():
        return None
    moment = dates.typed(typed, request.form.get("zone", "UTC"))
    same = known is not None and abs((moment - known).total_seconds()) < 60 and known.second
    return known if same else moment


def _part(name: str) -> float:
    """Per cent as a part. Raises AssignmentError."""
    typed = request.form.get(name, "").strip().replace(",", ".")
    try:
        return round(float(typed or 0) / 100, 6)
    except ValueError:
        raise AssignmentError(f"{name}: must be a number of per cent, such as 10") from None


def first_rubric(solution: Sequence[Document]) -> Rubric:
    """Made from a solution without a model, with titles in the reader's language: a beginning to edit."""
    made = template(solution, feedback="feedback" in stages())
    spoken = [one.model_copy(update={"title": _(one.title)}) for one in made.criteria]
    return made.model_copy(update={"criteria": tuple(spoken)})
