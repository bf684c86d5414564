"""Groups of equal answers to a criterion: a level, points or a comment for all members at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from flask import Blueprint, flash, redirect, render_template, request, url_for
from markupsafe import Markup
from pydantic import ValidationError
from sqlalchemy.orm import Session
from werkzeug.wrappers import Response

from app.review import criterion_page, views, worklist
from app.review.criterion_page import Switches
from app.review.detail import Level
from app.web import auth, grade_view_audit, parsing
from app.web.i18n import gettext as _
from app.web.i18n import ngettext, render_error
from app.web.services import services
from app.web.toasts import flash_undo
from grading.documents import pseudonymise_texts
from grading.domain.errors import NotFound
from grading.domain.permissions import Actor
from grading.domain.rubric import Criterion
from grading.similarity import AnswerGroup
from grading.store.experiments.examples import student_identities
from grading.store.review import answer_groups, bulk_changes, group_changes, rubric_items
from grading.store.review.answer_groups import AnswerGroups, Member
from grading.store.review.edits import NO_SUCH_CRITERION, ChangeRefused
from grading.store.review.group_changes import GroupChange
from grading.store.review.rubric_items import RubricItem
from grading.store.tables import new_id
from grading.store.views import submission_lists

pages = Blueprint("answer_groups", __name__)
ROOT = "/assignments/<int(max=2147483647):assignment_id>/review/criteria/<criterion>/groups"
ONE = f"{ROOT}/<group>"
NOTHING = "nothing"
"""Stands in addresses for the key of the group in which nothing was written."""
PER_PAGE = 40
"""Groups on one page."""
MEMBERS = 200
"""Members of a group that its page lists."""
SIMILAR = 10
"""Similar groups that the page of a group shows."""
Answer = Response | str | tuple[str, int]


@dataclass(frozen=True)
class Grouped:
    """The groups of a criterion, as pages name and number them."""

    assignment: submission_lists.AssignmentLine
    criterion: Criterion
    found: AnswerGroups
    switches: Switches

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Key of a group -> its number in the list, from 1."""
        return {group.key: number for number, group in enumerate(self.found.groups, start=1)}

    def values(self, key: str | None = None, **other: Any) -> dict[str, Any]:
        """Of the address of a page of the groups, or of one of them."""
        here = {"assignment_id": self.assignment.id, "criterion": self.criterion.id, **other}
        one = {} if key is None else {"group": key or NOTHING}
        return {**here, **one, **self.switches.address()}

    def named(self, member: Member) -> str:
        """A member's name, or pseudonym."""
        return criterion_page.name_of(self.assignment.id, member.student_id, member.student, self.switches)

    def members(self, group: AnswerGroup) -> tuple[Member, ...]:
        """The members of a group, in the order of the names that are shown."""
        return tuple(sorted(self.found.members_of(group), key=lambda one: self.named(one).lower()))

    def similar(self, group: AnswerGroup) -> list[AnswerGroup]:
        """Groups that are proposed as similar to this one."""
        return [one for one in self.found.groups if one.near and one.near == group.key]

    def open_after(self, key: str) -> list[str]:
        """The keys of the groups with somebody whom no person has graded: those after this one first."""
        groups = self.found.groups
        at = self.numbers.get(key, 0)
        return [one.key for one in (*groups[at:], *groups[:at]) if one.open and one.key != key]


@dataclass(frozen=True)
class GroupItem:
    """A rubric item, and how many members of a group have it."""

    item: RubricItem
    members: int


@pages.get(ROOT)
def listing(assignment_id: int, criterion: str) -> str:
    """The groups of a criterion, larger ones first."""
    actor = auth.actor()
    with services().store.read_autocommit() as session:
        grouped = _grouped(session, actor, assignment_id, criterion)
    count = -(-len(grouped.found.groups) // PER_PAGE) or 1
    page = min(worklist.page_of(request.args), count)
    here = grouped.found.groups[(page - 1) * PER_PAGE : page * PER_PAGE]
    return render_template(
        "review/answer_groups.html",
        grouped=grouped,
        saved=_saved_last(grouped),
        here=here,
        page=page,
        pages=count,
        actor=actor,
    )


@pages.get(f"{ROOT}/next")
def following(assignment_id: int, criterion: str) -> Response:
    """Lead to the next group that is not graded and that nobody else has open."""
    actor = auth.actor()
    with services().store.read_autocommit() as session:
        grouped = _grouped(session, actor, assignment_id, criterion)
    return _lead_on(actor, grouped, _key(request.args.get("after", "")))


@pages.get(ONE)
def one(assignment_id: int, criterion: str, group: str) -> str:
    """One group: the answer, its members, and what all of them get."""
    return _page(auth.actor(), assignment_id, criterion, _key(group))


@pages.post(ONE)
def save(assignment_id: int, criterion: str, group: str) -> Answer:
    """Give all members a level, points or a comment, and lead on to the next ungraded group."""
    actor, key = auth.actor(), _key(group)
    try:
        wanted, bulk = _wanted(), views.form_bulk()
        with services().store.read_autocommit() as session:
            grouped = _grouped(session, actor, assignment_id, criterion, "grade.change")
        groups = _chosen(grouped, key)
        changed, skipped = _change(grouped, groups, wanted, bulk, actor)
    except ChangeRefused as error:
        return _page(actor, assignment_id, criterion, key, render_error(error)), error.status
    flash_undo(_saved(changed, skipped), "answer_groups.undo", {"bulk": bulk}, **grouped.values(key))
    done = frozenset(one.key for one in groups)
    if wanted.item:
        address = grouped.values(key, undo=f"{bulk}.{key or NOTHING}")
        return redirect(url_for("answer_groups.one", **address), 303)
    return _lead_on(actor, grouped, key, done, undo=f"{bulk}.{key or NOTHING}")


@pages.post(f"{ONE}/undo")
def undo(assignment_id: int, criterion: str, group: str) -> Response:
    """Undo what was saved for all members, and go back to the group."""
    actor = auth.actor()
    with services().store.read_autocommit() as session:
        grouped = _grouped(session, actor, assignment_id, criterion, "grade.change")
    count = bulk_changes.undo_bulk(services().store, assignment_id, request.form.get("bulk", "")[:32], actor)
    flash(ngettext("Undone for %(count)s submission.", "Undone for %(count)s submissions.", count))
    return redirect(url_for("answer_groups.one", **grouped.values(_key(group))), 303)


@pages.post(f"{ONE}/members")
def move(assignment_id: int, criterion: str, group: str) -> Response:
    """Take a member out of its group, or put it back."""
    actor, submission_id = auth.actor(), request.form.get("submission", "")[:32]
    with services().store.write() as session:
        grouped = _grouped(session, actor, assignment_id, criterion, "grade.change")
        if submission_id not in grouped.found.members:
            raise NotFound(answer_groups.NO_SUCH_ANSWER)
        back = "back" in request.form
        (answer_groups.rejoin if back else answer_groups.separate)(session, submission_id, criterion, actor)
    name = grouped.named(grouped.found.members[submission_id])
    undo_fields = {"submission": submission_id, "back": not back}
    if back:
        message = _("%(name)s is in a group with equal answers again.", name=name)
    else:
        message = _("%(name)s was removed from the group.", name=name)
    flash_undo(message, "answer_groups.move", undo_fields, **grouped.values(_key(group)))
    if back:
        return redirect(url_for("answer_groups.listing", **grouped.values()), 303)
    return redirect(url_for("answer_groups.one", **grouped.values(_key(group))), 303)


def _page(actor: Actor, assignment_id: int, criterion: str, key: str, problem: str = "") -> str:
    with services().store.read_autocommit() as session:
        grouped = _grouped(session, actor, assignment_id, criterion)
        group = grouped.found.group(key)
        members = grouped.members(group)
        similar = grouped.similar(group)[:SIMILAR]
        work = _work(session, actor, grouped, members)
        codes = {one.key: _code(session, grouped, one) for one in similar}
        items = _group_items(session, grouped, group)
        points = (
            {} if grouped.switches.blind else answer_groups.load_points(session, members[:MEMBERS], criterion)
        )
    grade_view_audit.levels_shown(actor, list(points))
    claims = services().dispatch.claim_criterion(
        assignment_id, _claims(criterion), actor.user_id, [key or NOTHING]
    )
    return render_template(
        "review/answer_group.html",
        grouped=grouped,
        group=group,
        members=members[:MEMBERS],
        similar=similar,
        codes=codes,
        items=items,
        points=points,
        work=work,
        levels=_levels(grouped.criterion),
        taken=claims is None,
        saved=_saved_last(grouped),
        bulk=new_id(),
        problem=problem,
        actor=actor,
    )


def _work(session: Session, actor: Actor, grouped: Grouped, members: Sequence[Member]) -> Markup:
    """The answer, as the first member that is graded wrote it."""
    first = next((one for one in members if one.gradable), None)
    if first is None:
        return Markup("")
    whole = views.load_whole_view(session, actor, first.submission_id)
    page = criterion_page.load_page(session, whole.view, grouped.criterion.id, grouped.switches, actor)
    if not page.hidden:
        grade_view_audit.viewed(actor, first.submission_id, "criterion")
    return criterion_page.rendered_work(session, whole, page, grouped.switches)


def _code(session: Session, grouped: Grouped, group: AnswerGroup) -> list[str]:
    """The answer of a group as text, as its first member wrote it."""
    work = group.works[0]
    texts = [one.text for one in answer_groups.load_code(session, work, grouped.criterion.id)]
    for identity in student_identities(session, work) if grouped.switches.anonymous else ():
        texts = pseudonymise_texts(texts, identity)
    return texts


def _group_items(session: Session, grouped: Grouped, group: AnswerGroup) -> list[GroupItem]:
    assignment_id, criterion = grouped.assignment.id, grouped.criterion.id
    uses = rubric_items.submissions_with(session, assignment_id, criterion)
    return [
        GroupItem(one, len(uses.get(one.item, frozenset()) & set(group.works)))
        for one in rubric_items.list_items(session, assignment_id, criterion)
    ]


def _levels(criterion: Criterion) -> tuple[Level, ...]:
    return tuple(
        Level(number, words, round(criterion.points * number / criterion.highest, 2))
        for number, words in enumerate(criterion.levels)
    )


def _chosen(grouped: Grouped, key: str) -> list[AnswerGroup]:
    """The group, and those similar ones that were selected."""
    chosen = {_key(one) for one in request.form.getlist("similar")}
    group = grouped.found.group(key)
    return [group, *(one for one in grouped.similar(group) if one.key in chosen)]


def _change(
    grouped: Grouped, groups: Sequence[AnswerGroup], wanted: GroupChange, bulk: str, actor: Actor
) -> tuple[int, int]:
    """Change the members of these groups: how many were changed, and how many were skipped."""
    changed = skipped = 0
    for each in groups:
        works = _to_change(grouped, each, everybody=bool(wanted.item))
        result = group_changes.change_group(
            services().store, grouped.assignment.id, grouped.criterion, each.key, works, wanted,
            bulk=bulk, seen=_seen(grouped), actor=actor,
        )  # fmt: skip
        changed, skipped = changed + result.changed, skipped + len(result.skipped)
    return changed, skipped


def _to_change(grouped: Grouped, group: AnswerGroup, *, everybody: bool) -> list[str]:
    """Members that no person has graded; all where the form asks for it, or all are graded."""
    members = [one for one in grouped.found.members_of(group) if one.gradable]
    left = [one for one in members if not one.graded]
    everybody = everybody or "all" in request.form or not left
    return [one.submission_id for one in (members if everybody else left)]


def _seen(grouped: Grouped) -> int:
    given = parsing.whole_number(request.form.get("seen", ""), 18)
    return grouped.found.newest if given is None else given


def _saved(changed: int, skipped: int) -> str:
    words = ngettext("Saved for %(count)s submission.", "Saved for %(count)s submissions.", changed)
    if skipped:
        words += " " + ngettext(
            "%(count)s was skipped: someone graded it meanwhile.",
            "%(count)s were skipped: someone graded them meanwhile.",
            skipped,
        )
    return words


def _lead_on(
    actor: Actor, grouped: Grouped, key: str, done: frozenset[str] = frozenset(), **address: str
) -> Response:
    """To the next open group that nobody else has open; to the list where none is left."""
    open_keys = [one for one in grouped.open_after(key) if one not in done]
    names = [one or NOTHING for one in open_keys]
    claim = services().dispatch.claim_criterion
    found = claim(grouped.assignment.id, _claims(grouped.criterion.id), actor.user_id, names)
    if found is not None:
        return redirect(url_for("answer_groups.one", **grouped.values(_key(found), **address)), 303)
    if open_keys:
        flash(_("Other people are grading the remaining groups now."))
    else:
        flash(_("Staff has graded all groups of this criterion."))
    return redirect(url_for("answer_groups.listing", **grouped.values(**address)), 303)


def _saved_last(grouped: Grouped) -> tuple[str, str] | None:
    """The key of the group that was saved last and the id of its changes, as the address says."""
    bulk, _dot, group = request.args.get("undo", "").partition(".")
    key = _key(group)
    return (key, bulk[:32]) if bulk and group and key in grouped.numbers else None


def _grouped(
    session: Session, actor: Actor, assignment_id: int, criterion: str, action: str = "class.see"
) -> Grouped:
    """The groups of a criterion. Raises NotFound, Forbidden."""
    assignment = views.of_class(session, actor, assignment_id, action)
    rubric = {one.id: one for one in worklist.rubric_of(session, assignment)}
    if criterion not in rubric:
        raise NotFound(NO_SUCH_CRITERION)
    line = submission_lists.assignment_line(assignment, assignment.course)
    found = answer_groups.load_groups(session, assignment, criterion)
    return Grouped(line, rubric[criterion], found, criterion_page.switches_of(request.args))


def _claims(criterion: str) -> str:
    """What claims of groups of a criterion are kept under, beside those of its submissions."""
    return f"{criterion}:groups"


def _key(group: str) -> str:
    return "" if group == NOTHING else group[:80]


def _wanted() -> GroupChange:
    """What the form asks for. Raises ChangeRefused."""
    form = request.form
    remove = form.get("remove_item", "")[:32]
    item = remove or form.get("item", "")[:32]
    level = parsing.whole_number(form.get("level", ""), 2)
    texts = {name: _typed(name) for name in ("reason", "comment")}
    points = None if level is not None else worklist.number(form.get("points", ""))
    graded = {"level": level, "points": points, **texts}
    try:
        # a form is sent by one button: what is written beside it waits for a level
        return GroupChange.model_validate({"item": item, "remove": bool(remove)} if item else graded)
    except ValidationError:
        raise ChangeRefused from None


def _typed(name: str) -> str:
    return request.form.get(name, "").replace("\0", "").replace("\r\n", "\n").strip()
