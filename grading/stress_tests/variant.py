"""What a variant of a submission is, and what it is made from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Literal

from grading.domain.document import Document
from grading.domain.rubric import Rubric

Expectation = Literal["same", "not higher", "lower"]
"""What a grader that holds does: the same points, no more of them, or fewer for the variant's criterion."""
Documents = tuple[Document, ...]

UNCHANGED = "unchanged"
"""The family of submissions graded again as they are: what differs between them is the grader's noise."""
BENIGN = ("names", "comment language", "layout", "identifiers", "order")
"""Families that a student may choose freely: points may move neither up nor down."""
TEMPTING = ("praise", "length", "keywords", "forged outputs", "instructions", "recombined")
"""Families by which a student would gain: points must not go up."""
LOWERING = ("removed", "wrong value")
FAMILIES = (*BENIGN, *TEMPTING, *LOWERING)


@dataclass(frozen=True)
class Setting:
    """What variants need to know beside the documents they are made of."""

    rubric: Rubric
    starter: Documents = ()
    solution: Documents = ()
    tests: tuple[str, ...] = ()
    """Texts of the files with tests, whose names must stay."""


Change = Callable[[Documents, Setting, Random], Documents | None]
"""Makes the variant; nothing where the submission has no place for it. Documents have `added` filled in."""


@dataclass(frozen=True)
class Variant:
    """One way to change a submission."""

    key: str
    """Unique in the catalogue, such as `praise.prose`."""
    family: str
    change: Change
    expects: Expectation = "not higher"
    criterion: str = ""
    """Whose points must fall, where they must."""
