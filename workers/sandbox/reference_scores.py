"""What an assignment's own solution and starter earn by its rubric, before students submit anything.

Only what checks decide is counted: no model is asked. A rubric whose solution loses points, or whose starter
earns some, is wrong; nobody sees that when reading it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from grading.assignments.loader import Assignment
from grading.checks import collect
from grading.config.settings import Limits
from grading.documents import set_apart
from grading.domain.base_value import Value
from grading.domain.document import Cell, Document
from grading.domain.errors import AssignmentError
from grading.domain.evidence import Evidence
from grading.domain.report import CriterionGrade
from grading.domain.rubric import Criterion
from grading.execution.plan import make_plan
from grading.execution.results import Ran
from grading.scoring.adjustments import added_up, found_adjustments
from workers.sandbox.plan_runner import Runner

LEAST, MOST = 0.95, 0.05
"""Share that a solution must reach, and that a starter may, of a rubric that was translated."""
ONE_LINE = {"r": "x <- 1", "python": "x = 1"}
"""What is added to the starter: lines that do nothing must earn nothing."""


class RubricNotProven(AssignmentError):
    """The solution loses too many points by this rubric, or the starter earns some."""

    code = "rubric_not_proven"


class Score(Value):
    """What one work earns where checks decide; shares by criterion."""

    work: str
    """`solution`, `starter`, or `starter and one line`."""
    shares: dict[str, float]
    points: float
    most: float
    """Maximum of the criteria that checks decide."""
    lost: tuple[str, ...]
    """What the checks that did not earn in full say: the criterion, the check, why."""

    @property
    def share(self) -> float:
        """Of the maximum; 0 where nothing can be decided."""
        return self.points / self.most if self.most else 0.0


def scores(assignment: Assignment, runner: Runner, limits: Limits) -> tuple[Score, ...]:
    """Of the solution, the starter, and the starter with a line that does nothing; of what is there."""
    starter = assignment.starter
    works: dict[str, Sequence[Document]] = {"solution": assignment.solution, "starter": starter}
    works["starter and one line"] = [] if not starter else _with_a_line(starter)
    return tuple(score_of(name, assignment, work, runner, limits) for name, work in works.items() if work)


def require_proven(found: Sequence[Score]) -> None:
    """Raises RubricNotProven with what is wrong, and where; nothing where no check decides anything."""
    problems = []
    for one in found:
        if one.most and one.work == "solution" and one.share < LEAST:
            problems.append(f"the solution earns {one.share:.0%} where it must earn {LEAST:.0%} or more")
            problems += one.lost
        if one.most and one.work != "solution" and one.share > MOST:
            earning = ", ".join(name for name, share in one.shares.items() if share > MOST)
            problems.append(f"the {one.work} earns {one.share:.0%}, more than {MOST:.0%}: {earning}")
    if problems:
        lines = "\n  ".join(problems)
        raise RubricNotProven(
            f"The rubric does not fit its own assignment, so nothing was imported:\n  {lines}\n"
            "Mend the rubric or the solution, or import it as it is with --force."
        )


def decided(assignment: Assignment, found: Sequence[Score]) -> tuple[list[Criterion], list[Criterion]]:
    """The criteria that checks decide, and those that wait for a model or a person."""
    known = {name for one in found for name in one.shares}
    by_checks = [one for one in assignment.rubric.criteria if one.id in known]
    return by_checks, [one for one in assignment.rubric.criteria if one.id not in known]


def _with_a_line(starter: Sequence[Document]) -> list[Document]:
    first, *others = starter
    if first.language not in ONE_LINE:
        return []
    number = max((cell.number for cell in first.cells), default=0) + 1
    line = Cell(number=number, kind="code", source=ONE_LINE[first.language], language=first.language)
    if first.kind == "notebook":
        return [first.model_copy(update={"cells": (*first.cells, line)}), *others]
    if first.kind != "script" or not first.cells:
        return []
    longer = f"{first.cells[0].source.rstrip()}\n{line.source}\n"
    cell = first.cells[0].model_copy(update={"source": longer})
    return [first.model_copy(update={"cells": (cell, *first.cells[1:])}), *others]


def score_of(
    name: str, assignment: Assignment, work: Sequence[Document], runner: Runner, limits: Limits
) -> Score:
    """What a work called `name` earns by the assignment's checks when it is run in the runner."""
    evidence = _evidence(assignment, set_apart(work, assignment.starter), runner, limits)
    shares = {one.criterion: one.share for one in evidence.criteria if one.share is not None}
    criteria = [one for one in assignment.rubric.criteria if one.id in shares]
    grades = [_grade(one, shares[one.id]) for one in criteria]
    concerned = [
        one for one in found_adjustments(assignment.rubric, evidence) if set(one.criteria) <= set(shares)
    ]
    points = added_up(grades, concerned, assignment.rubric.bonus_at_most)[1] if grades else 0.0
    lost = (
        f"{one.criterion}: {outcome.label}: {outcome.message}"
        for one in evidence.criteria
        for outcome in one.outcomes
        if outcome.weight and outcome.earned < 1 and one.criterion in shares
    )
    most = sum(one.points for one in criteria if not one.bonus)
    return Score(work=name, shares=shares, points=points, most=most, lost=tuple(lost))


def _evidence(assignment: Assignment, work: Sequence[Document], runner: Runner, limits: Limits) -> Evidence:
    files = dict(assignment.files)
    data = {path: hashlib.sha256(body).hexdigest() for path, body in files.items() if _is(path, "data")}
    plan = make_plan(
        work,
        assignment.rubric,
        assignment.solution,
        files=data,
        tests={path: body.decode("utf-8", "replace") for path, body in files.items() if _is(path, "tests")},
        limits=limits,
        starter=assignment.starter,
    )
    return collect(work, assignment.rubric, assignment.solution, Ran(plan, runner.run(plan, None)))


def contents(assignment: Assignment) -> Mapping[str, bytes]:
    """The assignment's data files by their SHA-256: what the runner lays beside the work."""
    return {hashlib.sha256(b).hexdigest(): b for path, b in assignment.files if _is(path, "data")}


def _is(path: str, folder: str) -> bool:
    return path.startswith(f"{folder}/")


def _grade(criterion: Criterion, share: float) -> CriterionGrade:
    return CriterionGrade(
        criterion=criterion.id,
        title=criterion.title,
        stage=criterion.stage,
        points=round(criterion.points * share, 2),
        max_points=criterion.points,
        level=None,
        highest=criterion.highest,
        basis="checks",
        bonus=criterion.bonus,
    )
