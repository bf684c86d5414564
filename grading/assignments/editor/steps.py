"""The steps in which an assignment is written, and what it lacks at each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from grading.assignments.editor.rubric_from_solution import template


class Step(StrEnum):
    """A page of the editor, in the order in which they are gone through."""

    DETAILS = "details"
    TASK = "task"
    RUBRIC = "rubric"
    TESTS = "tests"
    TRY = "try"
    PUBLISH = "publish"


class Lacking(StrEnum):
    """Something an assignment does not have yet."""

    DUE = "due"
    VISIBILITY = "visibility"
    TASK = "task"
    OWN_RUBRIC = "own_rubric"
    CHECKS = "checks"
    SOLUTION = "solution"
    TEST_RUN = "test_run"
    PUBLICATION = "publication"


STEP_OF: Mapping[Lacking, Step] = MappingProxyType(
    {
        Lacking.DUE: Step.DETAILS,
        Lacking.VISIBILITY: Step.DETAILS,
        Lacking.TASK: Step.TASK,
        Lacking.OWN_RUBRIC: Step.RUBRIC,
        Lacking.CHECKS: Step.RUBRIC,
        Lacking.SOLUTION: Step.TESTS,
        Lacking.TEST_RUN: Step.TRY,
        Lacking.PUBLICATION: Step.PUBLISH,
    }
)
"""The step at which it is added."""


@dataclass(frozen=True)
class Written:
    """What there is of an assignment; the rubric, as JSON, and the rest are those of its newest version."""

    rubric: Mapping[str, Any]
    task: bool
    solution: bool
    tested: bool
    draft: bool
    """The newest version is not published."""
    published: bool
    """Some version is."""
    due: bool
    visible: bool


def following(step: Step) -> Step:
    """The step after this one; the last leads nowhere else."""
    steps = list(Step)
    return steps[min(steps.index(step) + 1, len(steps) - 1)]


def lacking(written: Written) -> tuple[Lacking, ...]:
    """What is missing, step by step. A published assignment may do without a due date or a solution."""
    return tuple(_lacking(written))


def _lacking(written: Written) -> Iterator[Lacking]:
    first = not written.published
    if first and not written.due:
        yield Lacking.DUE
    if not written.draft and not written.visible:  # publishing offers it, later it is a detail
        yield Lacking.VISIBILITY
    if not written.task:
        yield Lacking.TASK
    if first and _is_template(written.rubric):
        yield Lacking.OWN_RUBRIC
    elif not any(one.get("checks") for one in written.rubric.get("criteria", ())):
        yield Lacking.CHECKS
    if first and not written.solution:
        yield Lacking.SOLUTION
    if written.draft and not written.tested:
        yield Lacking.TEST_RUN
    if written.draft:
        yield Lacking.PUBLICATION


def _is_template(rubric: Mapping[str, Any]) -> bool:
    """Whether it still is what a new assignment begins with, in whatever language its titles are."""
    return _untitled(rubric) in _templates()


@lru_cache(maxsize=1)
def _templates() -> tuple[list[dict[str, Any]], ...]:
    made = (template((), feedback=feedback) for feedback in (True, False))
    return tuple(_untitled(one.model_dump(mode="json")) for one in made)


def _untitled(rubric: Mapping[str, Any]) -> list[dict[str, Any]]:
    criteria = rubric.get("criteria", ())
    return [{key: value for key, value in one.items() if key != "title"} for one in criteria]
