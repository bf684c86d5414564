"""Writing the rubric of an assignment, as a form or as text."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from flask import Blueprint, flash, render_template, request
from werkzeug.wrappers import Response

from app.assignments.editor import forms
from app.web import assignment_pages, auth
from app.web import rubric_texts as words
from app.web.assignment_pages import ANY
from app.web.i18n import gettext as _
from app.web.i18n import render_error
from app.web.rate_limits import limited, per_person
from app.web.services import services
from grading.assignments.editor import check_preview
from grading.assignments.editor import form as rubric_form
from grading.assignments.editor.diff import differences
from grading.assignments.editor.form import Problem, Raw
from grading.assignments.editor.form_actions import MOVES, NEW, act
from grading.assignments.editor.steps import Step
from grading.assignments.editor.toml_writer import written
from grading.assignments.legacy_import import Works, is_legacy, read_legacy_rubric
from grading.domain.check import CheckBase, check_kinds
from grading.domain.errors import AssignmentError, NotFound
from grading.domain.rubric import Adjustment, Criterion, Rubric
from grading.store.assignments import versions
from grading.store.assignments.versions import NothingChanged, SavedMeanwhile

pages = Blueprint("editor_rubric", __name__)
MOST_TEXT = 1_000_000
"""Characters of a rubric as text."""


# --- the rubric as a form -------------------------------------------------------------------------------


@pages.get(f"/assignments/{ANY}/rubric")
def edit(assignment_id: int) -> str:
    """The rubric of the newest version, to be changed."""
    actor = auth.actor()
    with services().store.read_autocommit() as session:
        found = assignment_pages.changeable(session, actor, assignment_id)
        now = versions.load_newest(session, found)
        top, rubric = assignment_pages.head(session, found, now), Rubric.model_validate(now.version.rubric)
    return _editor(top, rubric_form.to_raw(rubric), top.number)


@pages.post(f"/assignments/{ANY}/rubric")
def save(assignment_id: int) -> tuple[str, int] | str | Response:
    """Do what a button says: change the form, show it as students see it, or save it as a draft."""
    actor, raw = auth.actor(), rubric_form.of_form(request.form.items())
    with services().store.read_autocommit() as session:
        top = assignment_pages.head(session, assignment_pages.changeable(session, actor, assignment_id))
    action = request.form.get("do", "save")
    if action not in ("save", "next", "preview"):
        kinds = {name.removeprefix("new:"): kind for name, kind in request.form.items() if name[:4] == "new:"}
        at = act(raw, action, kinds)
        return _editor(top, raw, forms.base(), at=at, action=action)
    rubric, problems = rubric_form.read(raw, forms.stages())
    if rubric is None or action == "preview":
        return _editor(top, raw, forms.base(), problems, preview=rubric), 422 if problems else 200
    try:
        return _saved(actor, assignment_id, rubric)
    except AssignmentError as error:
        return _editor(top, raw, forms.base(), (rubric_form.problem_of(error),)), 422
    except SavedMeanwhile as error:
        return _meanwhile(assignment_id, raw, error), 409


def _saved(actor: Any, assignment_id: int, rubric: Rubric, report: Sequence[str] = ()) -> Response:
    """Save as a draft and go on there. Raises AssignmentError, SavedMeanwhile."""
    with services().store.write() as session:
        found = assignment_pages.changeable(session, actor, assignment_id)
        base = forms.base()
        content = versions.load_content(session, versions.version_by_number(session, assignment_id, base))
        try:
            new, note = replace(content, rubric=rubric), request.form.get("note", "")
            made = versions.save_draft(session, found, new, base, actor, note, report).number
        except NothingChanged as error:
            forms.flash_unchanged(error)
        else:
            flash(_("Saved as version %(number)s. It is a draft until you publish it.", number=made))
            forms.flash_report(report)
    return forms.after_saving(Step.RUBRIC, assignment_id)


def _meanwhile(assignment_id: int, raw: Raw, error: SavedMeanwhile) -> str:
    """The form with what was typed, and what somebody else changed meanwhile."""
    actor, before = auth.actor(), forms.base()
    with services().store.read_autocommit() as session:
        found = assignment_pages.changeable(session, actor, assignment_id)
        top = assignment_pages.head(session, found)
        theirs = versions.comparable(versions.version_by_number(session, assignment_id, error.number))
        mine = versions.comparable(versions.version_by_number(session, assignment_id, before))
    other = [words.difference_words(one) for one in differences(mine, theirs)]
    return _editor(top, raw, error.number, meanwhile=(render_error(error), before, other))


def _editor(
    top: assignment_pages.Head,
    raw: Raw,
    base: int,
    problems: tuple[Problem, ...] = (),
    *,
    preview: Rubric | None = None,
    at: str = "",
    action: str = "",
    meanwhile: tuple[str, int, list[str]] | None = None,
) -> str:
    return render_template(
        "assignments/editor/rubric.html",
        head=top,
        raw=raw,
        base=base,
        problems=words.problem_words(problems, raw, _fields(raw)),
        preview=preview,
        at=at,
        unfold=at if "." in at.partition(".")[2] or action.startswith(NEW) else "",
        moved=words.moved_words(at, raw) if at and action.startswith(MOVES) else "",
        meanwhile=meanwhile,
        total=_total(raw),
        stages=forms.stages(),
        words=words,
        kinds=words.kind_words(),
        shapes=rubric_form.shapes,
        classes=check_kinds(),
        rubric_class=Rubric,
        criterion=Criterion,
        adjustment=Adjustment,
        common=tuple(CheckBase.model_fields),
        note=request.form.get("note", ""),
    )


def _total(raw: Raw) -> float:
    """The points of the form as far as they are numbers, without those of bonus criteria."""
    total = 0.0
    for one in raw.get("criteria", ()):
        if one.get("bonus"):
            continue
        try:
            total += float(str(one.get("points", "")).replace(",", "."))
        except ValueError:
            continue
    return total


def _fields(raw: Any, name: str = "") -> list[str]:
    """The names of all fields and parts of a form."""
    inside: list[tuple[str, Any]] = []
    if isinstance(raw, dict):
        inside = list(raw.items())
    elif isinstance(raw, list):
        inside = [(str(n), one) for n, one in enumerate(raw)]
    here = [name] if name else []
    return [*here, *(f for key, one in inside for f in _fields(one, f"{name}.{key}" if name else key))]


@pages.post(f"/assignments/{ANY}/rubric/preview")
@limited("120 per minute", per_person)
def preview_check(assignment_id: int) -> str:
    """What a check that is being typed says about solution and starter; the form holds that check only."""
    actor, raw = auth.actor(), rubric_form.of_form(request.form.items())
    with services().store.read_autocommit() as session:
        found = assignment_pages.changeable(session, actor, assignment_id)
        works = versions.reference_works(versions.load_newest(session, found).version)
    if not any(one["checks"] for one in raw["criteria"][:1]):
        raise NotFound(_("This form has no check."))
    said = check_preview.preview(raw, works)
    problem = said.problems[0] if said.problems else None
    return render_template(
        "assignments/editor/_check_preview.html",
        said=said,
        problem=words.field_problem(problem) if problem else "",
        assignment_id=assignment_id,
    )


# --- the rubric as text ---------------------------------------------------------------------------------


@pages.get(f"/assignments/{ANY}/rubric/text")
def as_text(assignment_id: int) -> str:
    """The rubric as TOML or JSON."""
    actor = auth.actor()
    with services().store.read_autocommit() as session:
        found = assignment_pages.changeable(session, actor, assignment_id)
        now = versions.load_newest(session, found)
        top, rubric = assignment_pages.head(session, found, now), Rubric.model_validate(now.version.rubric)
    how = "json" if request.args.get("as") == "json" else "toml"
    data = rubric_form.as_json(rubric)
    text = json.dumps(data, indent=2, ensure_ascii=False) + "\n" if how == "json" else written(data)
    return _text_page(top, text, top.number)


@pages.post(f"/assignments/{ANY}/rubric/text")
def save_text(assignment_id: int) -> tuple[str, int] | Response:
    """Save what was typed as a draft."""
    actor, typed = auth.actor(), forms.text("text")
    with services().store.read_autocommit() as session:
        found = assignment_pages.changeable(session, actor, assignment_id)
        top, works = (
            assignment_pages.head(session, found),
            versions.reference_works(versions.load_newest(session, found).version),
        )
    try:
        rubric, problems, report = _of_text(typed, works)
        if rubric is None:
            sentences = [sentence for _at, sentence in words.problem_words(problems, None, ())]
            return _text_page(top, typed, forms.base(), sentences), 422
        return _saved(actor, assignment_id, rubric, report)
    except AssignmentError as error:
        return _text_page(top, typed, forms.base(), [render_error(error)]), 422
    except SavedMeanwhile as error:
        again = _("See the changes under Publish. Saving again creates another version.")
        return _text_page(top, typed, error.number, [f"{render_error(error)} {again}"]), 409


def _of_text(typed: str, works: Works) -> tuple[Rubric | None, tuple[Problem, ...], Sequence[str]]:
    """The rubric, or what is wrong in it, and how it was read. Raises AssignmentError where it is no text."""
    if len(typed) > MOST_TEXT:
        raise AssignmentError(_("This rubric is too long."))
    try:
        data = json.loads(typed) if typed.lstrip().startswith("{") else tomllib.loads(typed)
    except (ValueError, RecursionError) as error:
        raise AssignmentError(_("Invalid TOML or JSON: %(why)s", why=error)) from error
    if is_legacy(data):
        rubric, report = read_legacy_rubric(data, works)
        return rubric, (), report
    return *rubric_form.validated(data, forms.stages()), ()


def _text_page(top: assignment_pages.Head, text: str, base: int, problems: list[str] | None = None) -> str:
    return render_template(
        "assignments/editor/text.html",
        head=top,
        text=text,
        base=base,
        problems=problems or [],
        note=request.form.get("note", ""),
    )
