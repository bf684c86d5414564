"""What a person may change in a report, as values; `grading.scoring.changes` applies them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from grading.domain.base_value import Value

Kind = Literal[
    "points",
    "confirm",
    "reason",
    "item",
    "remove_item",
    "remark",
    "hide",
    "add",
    "text",
    "adjust",
    "waive",
    "apply",
]
"""points    of a criterion: `points`, target is the criterion's id
confirm   the points of a criterion stay as they are: a person agrees with them
reason    of a criterion: `text`
item      a rubric item applies to a criterion: `points` more or less, `text`; target: see `item_target`
remove_item   a rubric item applies no more; target as above
remark    a finding or suggestion says something else: `text`; target `finding:2`, `suggestion:0`, from 0
hide      a finding or suggestion is not shown; target as above
add       a comment by a person at a place: `text`, `document`, `cell`, `line`
text      a part of the feedback or the summary says something else; target `feedback.achieved`
adjust    the total: `points` more or less
waive     an adjustment of the rubric takes nothing; target is its id
apply     an adjustment of the rubric applies in full; target as above
"""


GRADING: tuple[Kind, ...] = ("points", "confirm")
"""Kinds by which a person grades a criterion.

A criterion of a submission is graded by a person when its current round has such a change of it that is not
undone, the last one by that person, or when a person marked the whole grade as reviewed. When each criterion
has one, the grade is reviewed: see `grading.store.grades.review_state`.
"""
ITEM: tuple[Kind, ...] = ("item", "remove_item")
"""Kinds by which a rubric item is applied and removed."""


def item_target(criterion: str, item: str) -> str:
    """The target of changes that apply or remove this rubric item; ids of criteria have no slash."""
    return f"{criterion}/{item}"


def split_item_target(target: str) -> tuple[str, str]:
    """The criterion and the rubric item of a target."""
    criterion, _, item = target.partition("/")
    return criterion, item


class Change(Value):
    """One change of a report. Later ones of the same kind and target count instead of earlier ones.

    `waive` and `apply` count as one kind, and so do `item` and `remove_item`.
    """

    id: int = 0
    kind: Kind
    target: str = Field(default="", max_length=100)
    points: float | None = Field(default=None, ge=-10_000, le=10_000)
    text: str = Field(default="", max_length=20_000)
    document: str = Field(default="", max_length=400)
    cell: int | None = None
    line: int | None = None
    reason: str = Field(default="", max_length=2_000)
    by: str = ""
    """Who, by name."""
