"""People's changes of a report carried over to another report of its submission, with conflicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from grading.domain.report import CriterionGrade, Report
from grading.domain.report_changes import ITEM, Change, split_item_target
from grading.scoring.changes import LISTS

Why = Literal["gone", "too_many", "worth", "judged", "item", "remark"]
"""gone       the criterion or adjustment is not in the new rubric: the change is left behind
too_many   the person gave more points than the criterion has now: the highest counts
worth      the criterion has other points now: the person's points stay
judged     the new grading judges it otherwise than the one that was changed: the person's points stay
item       the same where a person applied a rubric item: the item stays
remark     the remark that was changed is not in the new report: the change is left behind
"""


@dataclass(frozen=True)
class Conflict:
    """A change that does not fit the new report as it fitted the old one."""

    why: Why
    name: str
    """The criterion's title, or the remark's."""
    before: float | None = None
    after: float | None = None
    person: float | None = None


@dataclass(frozen=True)
class Carried:
    """The changes as they are for the new report; `of` are the numbers of those they were made from."""

    changes: tuple[Change, ...] = ()
    conflicts: tuple[Conflict, ...] = ()


def carried(changes: Iterable[Change], old: Report, new: Report) -> Carried:
    """People's changes of the old report for the new one. Their ids stay."""
    kept: list[Change] = []
    conflicts: list[Conflict] = []
    was = {one.criterion: one for one in old.criteria}
    now = {one.criterion: one for one in new.criteria}
    for change in changes:
        if change.kind in ("points", "reason"):
            mine, conflict = _of_criterion(change, was.get(change.target), now.get(change.target))
        elif change.kind == "confirm":
            mine, conflict = _confirmed(change, was.get(change.target), now.get(change.target)), None
        elif change.kind in ITEM:
            mine, conflict = _of_item(change, was, now)
        elif change.kind in ("waive", "apply"):
            mine, conflict = _of_adjustment(change, old, new)
        elif change.kind in ("remark", "hide"):
            mine, conflict = _of_remark(change, old, new)
        else:
            mine, conflict = change, None
        kept += [mine] if mine is not None else []
        conflicts += [conflict] if conflict is not None else []
    return Carried(tuple(kept), tuple(conflicts))


def _of_criterion(
    change: Change, was: CriterionGrade | None, now: CriterionGrade | None
) -> tuple[Change | None, Conflict | None]:
    title = was.title if was else change.target
    if now is None:
        return None, Conflict("gone", title, person=change.points)
    if change.kind == "reason" or change.points is None or was is None:
        return change, None
    if change.points > now.max_points:
        return change, Conflict("too_many", title, was.max_points, now.max_points, change.points)
    if was.max_points != now.max_points:
        return change, Conflict("worth", title, was.max_points, now.max_points, change.points)
    if was.points != now.points:
        return change, Conflict("judged", title, was.points, now.points, change.points)
    return change, None


def _confirmed(change: Change, was: CriterionGrade | None, now: CriterionGrade | None) -> Change | None:
    """What a person agreed with must stand there still; else the criterion is to be graded again."""
    same = (
        was is not None and now is not None and (was.points, was.max_points) == (now.points, now.max_points)
    )
    return change if same else None


def _of_item(
    change: Change, was: Mapping[str, CriterionGrade], now: Mapping[str, CriterionGrade]
) -> tuple[Change | None, Conflict | None]:
    """A rubric item stays with its criterion; it may concern what another level takes off already."""
    criterion, _ = split_item_target(change.target)
    before, after = was.get(criterion), now.get(criterion)
    title = before.title if before else criterion
    if after is None:
        return None, Conflict("gone", title)
    if change.kind == "item" and before is not None and before.points != after.points:
        return change, Conflict("item", title, before.points, after.points)
    return change, None


def _of_adjustment(change: Change, old: Report, new: Report) -> tuple[Change | None, Conflict | None]:
    if any(one.adjustment == change.target for one in new.adjustments):
        return change, None
    title = next((one.title for one in old.adjustments if one.adjustment == change.target), change.target)
    return None, Conflict("gone", title)


def _of_remark(change: Change, old: Report, new: Report) -> tuple[Change | None, Conflict | None]:
    kind, _, index = change.target.partition(":")
    field = LISTS.get(kind, ("", ""))[0]
    before = list(getattr(old.analysis, field, ())) if field else []
    after = list(getattr(new.analysis, field, ())) if field else []
    if not index.isdecimal() or int(index) >= len(before):
        return None, None
    remark = before[int(index)]
    if remark in after:
        return change.model_copy(update={"target": f"{kind}:{after.index(remark)}"}), None
    title = getattr(remark, "title", "") or getattr(remark, "what", "")
    return None, Conflict("remark", title)
