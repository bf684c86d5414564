"""What people changed, put into a report. The report as it was combined stays as it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from grading.domain.document import Location
from grading.domain.jobs import Finding, Suggestion
from grading.domain.report import AppliedItem, Corrected, CriterionGrade, PersonComment, Report
from grading.domain.report_changes import ITEM, Change, split_item_target
from grading.domain.round_states import RoundState
from grading.domain.stages import AnalysisOutput
from grading.scoring.adjustments import added_up, decided

LISTS: Mapping[str, tuple[str, str]] = {
    # target -> (field of the analysis, what of it is said)
    "finding": ("findings", "detail"),
    "suggestion": ("suggestions", "how"),
}


def changed(report: Report, changes: Iterable[Change]) -> Report:
    """The report with these changes; of the same kind and target the last one counts.

    Points of a changed criterion are between 0 and its points. Targets that are not there are passed over.
    """
    given = [*changes]
    of = [*{(one.kind, one.target or one.id): one for one in given}.values()]
    if not of:
        return report
    items = applied_items(given)
    criteria = tuple(
        _with_items(_criterion(grade, of), items.get(grade.criterion, ())) for grade in report.criteria
    )
    adjustments, so_far = added_up(criteria, decided(report.adjustments, given), report.bonus_at_most)
    whole = report.status == RoundState.GRADED and all(grade.points is not None for grade in criteria)
    made = report.model_copy(
        update={
            "criteria": criteria,
            "adjustments": adjustments,
            "points": so_far if whole else None,
            "points_so_far": so_far,
            "comments": tuple(_comment(one) for one in of if one.kind == "add"),
        }
    )
    made = _words(made, [one for one in of if one.kind == "text"])
    return _remarks(made, of)


def at_level(grade: CriterionGrade, level: int) -> float:
    """The points that a level of a criterion gives."""
    return round(grade.max_points * level / grade.highest, 2)


def applied_items(changes: Iterable[Change]) -> dict[str, tuple[Change, ...]]:
    """Criterion -> the changes by which its rubric items apply; of each item the last word counts."""
    words = {one.target: one for one in changes if one.kind in ITEM}
    found: dict[str, tuple[Change, ...]] = {}
    for target, one in words.items():
        if one.kind == "item":
            criterion, _ = split_item_target(target)
            found[criterion] = (*found.get(criterion, ()), one)
    return found


def _with_items(grade: CriterionGrade, items: Sequence[Change]) -> CriterionGrade:
    """points = those of the level + those of the items, between 0 and the criterion's maximum."""
    if not items:
        return grade
    applied = tuple(
        AppliedItem(item=split_item_target(one.target)[1], text=one.text, points=one.points or 0.0, by=one.by)
        for one in items
    )
    update: dict[str, Any] = {"items": applied}
    if grade.points is not None:
        points = grade.points + sum(one.points for one in applied)
        update["points"] = round(min(max(points, 0.0), grade.max_points), 2)
        update["points_before_items"] = grade.points
    return grade.model_copy(update=update)


def _criterion(grade: CriterionGrade, changes: Sequence[Change]) -> CriterionGrade:
    for one in changes:
        if one.target != grade.criterion:
            continue
        before = grade.corrected or Corrected(by=one.by, reason=one.reason)
        if one.kind == "points" and one.points is not None:
            points = round(min(max(one.points, 0.0), grade.max_points), 2)
            level = round(points / grade.max_points * grade.highest, 2) if grade.max_points else grade.level
            told = before.model_copy(update={"points": grade.points, "by": one.by, "reason": one.reason})
            update = {"points": points, "level": level, "basis": "person", "corrected": told}
            grade = grade.model_copy(update=update)
        elif one.kind == "reason":
            told = before.model_copy(update={"text": grade.reason})
            grade = grade.model_copy(update={"reason": one.text, "corrected": told})
    return grade


def _comment(change: Change) -> PersonComment:
    place = None
    if change.document:
        place = Location(document=change.document, cell=change.cell, line=change.line)
    return PersonComment(text=change.text, by=change.by, location=place, change=change.id)


def _words(report: Report, changes: Sequence[Change]) -> Report:
    for one in changes:
        stage, _, name = one.target.partition(".")
        before = report.stage_output(stage).get(name)
        if isinstance(before, str):
            told = Corrected(by=one.by, reason=one.reason, text=before)
            report = report.with_text(stage, name, one.text)
            report = report.model_copy(update={"corrected": {**report.corrected, one.target: told}})
    return report


def _remarks(report: Report, changes: Sequence[Change]) -> Report:
    """Findings and suggestions that say something else now, or are not shown."""
    if report.analysis is None:
        return report
    hidden = {one.target for one in changes if one.kind == "hide"}
    said = {one.target: one for one in changes if one.kind == "remark"}
    corrected = dict(report.corrected)
    update: dict[str, Any] = {}
    for kind, (field, words) in LISTS.items():
        kept: list[Finding | Suggestion] = []
        for index, remark in enumerate(getattr(report.analysis, field)):
            target = f"{kind}:{index}"
            if target in hidden:
                continue
            if (one := said.get(target)) is not None:
                corrected[target] = Corrected(by=one.by, reason=one.reason, text=getattr(remark, words))
                remark = remark.model_copy(update={words: one.text})
            kept.append(remark)
        update[field] = tuple(kept)
    analysis: AnalysisOutput = report.analysis.model_copy(update=update)
    return report.model_copy(update={"analysis": analysis, "corrected": corrected})
