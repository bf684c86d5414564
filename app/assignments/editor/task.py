"""The task of an assignment, the instructions of its stages, and its settings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flask import Blueprint, flash, render_template, request
from werkzeug.wrappers import Response

from app.assignments.editor import forms
from app.web import assignment_pages, auth, markdown
from app.web.assignment_pages import ANY
from app.web.i18n import gettext as _
from app.web.i18n import render_error
from app.web.services import services
from grading.assignments.editor.steps import Step
from grading.config.language_names import english_name
from grading.domain.errors import AssignmentError
from grading.store.assignments import versions
from grading.store.assignments.versions import NothingChanged, SavedMeanwhile

pages = Blueprint("editor_task", __name__)


@pages.get(f"/assignments/{ANY}/task")
def edit(assignment_id: int) -> str:
    """The task, the instructions of the stages, and what goes with them."""
    actor = auth.actor()
    with services().store.read_autocommit() as session:
        found = assignment_pages.changeable(session, actor, assignment_id)
        now = versions.load_newest(session, found)
        top, row = assignment_pages.head(session, found, now), now.version
    fields = {
        "task": row.task,
        "spoken_language": row.spoken_language,
        "share_solution": row.share_solution,
        "show_draft": row.show_draft,
        **{f"instructions:{stage}": str(row.instructions.get(stage, "")) for stage in forms.stages()},
    }
    return _task_page(top, fields, top.number)


@pages.post(f"/assignments/{ANY}/task")
def save(assignment_id: int) -> tuple[str, int] | str | Response:
    """Save task and instructions as a draft, or show the task as students see it."""
    actor = auth.actor()
    with services().store.read_autocommit() as session:
        top = assignment_pages.head(session, assignment_pages.changeable(session, actor, assignment_id))
    fields = {name: forms.text(name) for name in ("task", "spoken_language")}
    fields |= {f"instructions:{stage}": forms.text(f"instructions:{stage}") for stage in forms.stages()}
    ticked = {name: bool(request.form.get(name)) for name in ("share_solution", "show_draft")}
    if request.form.get("do") == "preview":
        return _task_page(top, {**fields, **ticked}, forms.base(), preview=True)
    try:
        return _save_task(actor, assignment_id, fields, ticked)
    except (AssignmentError, ValueError) as error:
        return _task_page(top, {**fields, **ticked}, forms.base(), str(error)), 422
    except SavedMeanwhile as error:
        again = _("See the changes under Publish. Saving again creates another version.")
        return _task_page(top, {**fields, **ticked}, error.number, f"{render_error(error)} {again}"), 409


def _save_task(actor: Any, assignment_id: int, fields: dict[str, str], ticked: dict[str, bool]) -> Response:
    spoken = english_name(fields["spoken_language"].strip() or "English")
    stages = forms.stages()
    with services().store.write() as session:
        found = assignment_pages.changeable(session, actor, assignment_id)
        content = versions.load_content(
            session, versions.version_by_number(session, assignment_id, forms.base())
        )
        # those of stages that are not configured now stay as they are
        instructions = {
            **content.instructions,
            **{stage: fields[f"instructions:{stage}"].strip() for stage in stages},
        }
        made = replace(
            content,
            task=fields["task"].strip(),
            instructions={stage: text for stage, text in instructions.items() if text},
            spoken_language=spoken,
            share_solution=ticked["share_solution"],
            show_draft=ticked["show_draft"],
        )
        try:
            row = versions.save_draft(session, found, made, forms.base(), actor, request.form.get("note", ""))
            flash(_("Saved as version %(number)s. It is a draft until you publish it.", number=row.number))
        except NothingChanged as error:
            forms.flash_unchanged(error)
    return forms.after_saving(Step.TASK, assignment_id)


def _task_page(
    top: assignment_pages.Head, fields: dict[str, Any], base: int, problem: str = "", *, preview: bool = False
) -> str:
    return render_template(
        "assignments/editor/task.html",
        head=top,
        fields=fields,
        base=base,
        problem=problem,
        preview=markdown.markdown(fields["task"]) if preview else None,
        stages=forms.stages(),
        note=request.form.get("note", ""),
    )
