"""What all pages for writing an assignment share: who may, what is written on, how forms are read."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

from flask import flash, redirect, request
from markupsafe import Markup, escape
from pydantic import ValidationError
from werkzeug.wrappers import Response

from app.web import authoring_steps, dates
from app.web.assignment_pages import whole
from app.web.i18n import gettext as _
from app.web.i18n import later as N_
from app.web.i18n import ngettext, render_error
from app.web.services import services
from grading.assignments.editor.folder import Settings
from grading.assignments.editor.rubric_from_solution import template
from grading.assignments.editor.steps import Step, following
from grading.domain.document import Document
from grading.domain.errors import AssignmentError
from grading.domain.rubric import Rubric
from grading.domain.rubric_errors import explain
from grading.domain.stages import grading_stages
from grading.store.assignments.versions import NothingChanged

TITLES = (
    N_("Uses the functions the task asks for"),
    N_("Makes the results"),
    N_("Complete and without errors"),
    N_("Explains what was done and why"),
)
"""Of the criteria of a template, for translators."""


def flash_report(report: Sequence[str]) -> None:
    """Say that there is a report of how files were read; it is too long for a message itself."""
    if report:
        message = ngettext(
            "The import gave %(count)s warning. It is listed under Publish.",
            "The import gave %(count)s warnings. They are listed under Publish.",
            len(report),
        )
        flash(message, "warning")


def leads_on() -> bool:
    """Whether the button that was pressed saves and goes on to the next step."""
    return request.form.get("do") == "next"


def flash_unchanged(error: NothingChanged) -> None:
    """Say that nothing was changed, unless the writer only goes on."""
    if not leads_on():
        flash(render_error(error))


def after_saving(step: Step, assignment_id: int) -> Response:
    """On to the next step, or back to this one, as the button said."""
    then = following(step) if leads_on() else step
    return redirect(authoring_steps.step_url(then, assignment_id), 303)


def stages() -> tuple[str, ...]:
    """The stages submissions can be graded by here."""
    return grading_stages(services().config.stages)


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


def text(name: str) -> str:
    """A text of the form, with line ends as everywhere."""
    return request.form.get(name, "").replace("\r\n", "\n")


def settings_form(settings: Settings, zone: str = "UTC", seconds: bool = False) -> dict[str, Any]:
    """The fields of the settings' form, with dates to the minute or to the second."""
    late = settings.late
    local = partial(_local, "%Y-%m-%dT%H:%M:%S" if seconds else "%Y-%m-%dT%H:%M")
    return {
        "title": settings.title,
        "slug": settings.slug,
        "language": settings.language,
        "zone": zone,
        "due": local(settings.due),
        "release": settings.release,
        "release_at": local(settings.release_at),
        "grace_minutes": str(late.grace_minutes),
        "per_day": f"{100 * late.per_day:g}",
        "at_least": f"{100 * late.at_least:g}",
        "days": "" if late.days is None else str(late.days),
        "max_submissions": "" if settings.max_submissions is None else str(settings.max_submissions),
        "group_size": str(settings.group_size),
        "counts": settings.counts,
        "visible": "yes" if settings.visible else "",
        "code_editor": "yes" if settings.code_editor else "",
    }


def _local(form: str, moment: Any) -> str:
    return moment.strftime(form) if moment else ""


def read_settings(current: Settings | None = None) -> Settings:
    """The settings a form says. Raises AssignmentError with the field's name first, BadDate.

    `known` are those of now: a moment that was not touched keeps its seconds.
    """
    form = request.form
    data: dict[str, Any] = {
        "title": form.get("title", "").strip(),
        "slug": form.get("slug", "").strip(),
        "language": form.get("language", ""),
        "due": _moment("due", current.due if current else None),
        "release": form.get("release", "after_review"),
        "release_at": _moment("release_at", current.release_at if current else None),
        "late": {
            "grace_minutes": form.get("grace_minutes", "").strip() or 0,
            "per_day": _part("per_day"),
            "at_least": _part("at_least"),
            "days": form.get("days", "").strip() or None,
        },
        "max_submissions": form.get("max_submissions", "").strip() or None,
        "group_size": form.get("group_size", "").strip() or 1,
        "counts": form.get("counts", "latest"),
        "visible": bool(form.get("visible")),
        "code_editor": bool(form.get("code_editor")),
    }
    if data["release"] != "at":
        data["release_at"] = None
    return checked(data)


def checked(data: dict[str, Any]) -> Settings:
    """Settings from JSON. Raises AssignmentError with the field's name first."""
    try:
        return Settings.model_validate(data)
    except ValidationError as error:
        raise explain(error, Settings) from error


def _moment(name: str, current: Any) -> Any:
    typed = request.form.get(name, "")
    if not typed.strip():
        return None
    moment = dates.typed(typed, request.form.get("zone", "UTC"))
    same = current is not None and abs((moment - current).total_seconds()) < 60 and current.second
    return current if same else moment


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


def settings_choices() -> dict[str, Any]:
    """What the fields of the settings' form offer."""
    return {
        "languages_of_work": ("r", "python", "sql", "java", "c", "cpp", "javascript", "typescript"),
        "releases": {
            "at_once": _("immediately"),
            "after_review": _("manually"),
            "at": _("on a date"),
        },
    }
