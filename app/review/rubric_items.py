"""The rubric items of a criterion: who has them, editing one everywhere after its effect was shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flask import Blueprint, flash, redirect, render_template, request, url_for
from sqlalchemy.orm import Session
from werkzeug.wrappers import Response

from app.review import criterion_page, views, worklist
from app.review.criterion_page import Switches
from app.web import auth, parsing
from app.web.i18n import gettext as _
from app.web.i18n import ngettext, render_error
from app.web.services import services
from app.web.toasts import flash_undo
from grading.domain.errors import CannotUndo, Conflict, NotFound
from grading.domain.permissions import Actor
from grading.domain.rubric import Criterion
from grading.statistics import grade_impact
from grading.store import tables
from grading.store.review import item_changes, rubric_items
from grading.store.review.edits import NO_SUCH_CRITERION, ChangeRefused
from grading.store.review.item_changes import Moved
from grading.store.review.rubric_items import ItemRefused, RubricItem
from grading.store.tables import new_id
from grading.store.views import submission_lists

pages = Blueprint("rubric_items", __name__)
ROOT = "/assignments/<int(max=2147483647):assignment_id>/review/criteria/<criterion>/items"
ONE = f"{ROOT}/<item>"
MOST_LISTED = 100
"""Submissions whose points before and after an edit are listed."""
Answer = Response | str | tuple[str, int]


@dataclass(frozen=True)
class Row:
    """An item, and how many submissions have it."""

    item: RubricItem
    uses: int


@dataclass(frozen=True)
class ItemsOf:
    """The items of a criterion."""

    assignment: submission_lists.AssignmentLine
    criterion: Criterion
    rows: tuple[Row, ...]
    switches: Switches

    def values(self, item: str = "", **other: Any) -> dict[str, Any]:
        """Of the address of the page of all items, or of one."""
        here = {"assignment_id": self.assignment.id, "criterion": self.criterion.id, **other}
        return {**here, **({"item": item} if item else {}), **self.switches.address()}


@pages.get(ROOT)
def listing(assignment_id: int, criterion: str) -> str:
    """The items of a criterion, with forms to edit them and to add one."""
    return _page(auth.actor(), assignment_id, criterion)


@pages.post(ROOT)
def add(assignment_id: int, criterion: str) -> Answer:
    """Add an item."""
    actor = auth.actor()
    try:
        with services().store.write() as session:
            assignment = views.of_class(session, actor, assignment_id, "grade.change")
            made = views.new_item(session, assignment, criterion, actor)
            found = _items(session, actor, assignment_id, criterion)
    except ItemRefused as error:
        return _page(actor, assignment_id, criterion, render_error(error)), error.status
    flash(_("Rubric item added: %(text)s", text=made.text[:100]))
    return redirect(url_for("rubric_items.listing", **found.values()), 303)


@pages.post(ONE)
def edit(assignment_id: int, criterion: str, item: str) -> Answer:
    """Edit or delete an item everywhere; where points change, once the form says that this was seen."""
    actor = auth.actor()
    try:
        with services().store.read_autocommit() as session:
            found = _items(session, actor, assignment_id, criterion, "grade.change")
            edited = _edited(session, found, item)
            moved = item_changes.preview_edit(session, assignment_id, edited)
        if any(one.delta for one in moved) and "sure" not in request.form:
            return _preview(found, edited, moved)
        bulk = views.form_bulk()
        count = item_changes.edit_item(
            services().store, assignment_id, edited, seen=_seen(), bulk=bulk, actor=actor
        )
    except (ItemRefused, ChangeRefused, Conflict) as error:
        return _page(actor, assignment_id, criterion, render_error(error)), error.status
    flash_undo(_saved(edited, count), "rubric_items.undo", {"bulk": bulk}, **found.values(item))
    return redirect(url_for("rubric_items.listing", **found.values()), 303)


@pages.post(f"{ONE}/undo")
def undo(assignment_id: int, criterion: str, item: str) -> Response:
    """Undo an edit or a deletion, also in the grades."""
    actor = auth.actor()
    with services().store.read_autocommit() as session:
        found = _items(session, actor, assignment_id, criterion, "grade.change")
    try:
        bulk = request.form.get("bulk", "")[:32]
        item_changes.undo_edit(services().store, assignment_id, item, bulk, actor)
        flash(_("Undone. The previous value is restored."))
    except CannotUndo as error:
        flash(render_error(error), "danger")
    return redirect(url_for("rubric_items.listing", **found.values()), 303)


def _page(actor: Actor, assignment_id: int, criterion: str, problem: str = "") -> str:
    with services().store.read_autocommit() as session:
        found = _items(session, actor, assignment_id, criterion)
    typed = request.form if problem else {}
    return render_template(
        "review/rubric_items.html", found=found, problem=problem, typed=typed, new_id=new_id, actor=actor
    )


def _preview(found: ItemsOf, edited: RubricItem, moved: tuple[Moved, ...]) -> str:
    """The page that shows what an edit would do, and asks."""
    points = [one.points for one in moved if one.points is not None]
    return render_template(
        "review/rubric_item_edit.html",
        found=found,
        edited=edited,
        seen=_seen(),
        bulk=views.form_bulk(),
        moved=moved[:MOST_LISTED],
        total=len(moved),
        released=sum(one.released for one in moved),
        names={
            one.submission_id: criterion_page.name_of(
                found.assignment.id, one.student_id, one.student, found.switches
            )
            for one in moved[:MOST_LISTED]
        },
        summary=grade_impact.summary(points),
        dots=grade_impact.dots(points),
        scale=grade_impact,
        boundary=grade_impact.PASS,
    )


def _items(
    session: Session, actor: Actor, assignment_id: int, criterion: str, action: str = "class.see"
) -> ItemsOf:
    """The items of a criterion with their uses. Raises NotFound, Forbidden."""
    assignment: tables.Assignment = views.of_class(session, actor, assignment_id, action)
    rubric = {one.id: one for one in worklist.rubric_of(session, assignment)}
    if criterion not in rubric:
        raise NotFound(NO_SUCH_CRITERION)
    uses = rubric_items.submissions_with(session, assignment_id, criterion)
    rows = tuple(
        Row(one, len(uses.get(one.item, ())))
        for one in rubric_items.list_items(session, assignment_id, criterion)
    )
    line = submission_lists.assignment_line(assignment, assignment.course)
    return ItemsOf(line, rubric[criterion], rows, criterion_page.switches_of(request.args))


def _edited(session: Session, found: ItemsOf, item: str) -> RubricItem:
    """The item as the form wants it. Raises NotFound, ItemRefused."""
    now = rubric_items.load_item(session, found.assignment.id, item)
    if now.criterion != found.criterion.id:
        raise NotFound(rubric_items.NO_SUCH_ITEM)
    if "delete" in request.form:
        return now.model_copy(update={"active": False})
    text, points = rubric_items.checked(
        found.criterion, request.form.get("text", ""), worklist.number(request.form.get("points", "") or "0")
    )
    return now.model_copy(update={"text": text, "points": points})


def _saved(edited: RubricItem, count: int) -> str:
    words = _("Rubric item saved.") if edited.active else _("Rubric item deleted.")
    if not count:
        return words
    return f"{words} " + ngettext(
        "%(count)s submission was updated.", "%(count)s submissions were updated.", count
    )


def _seen() -> int:
    return parsing.whole_number(request.form.get("seen", "")) or 0
