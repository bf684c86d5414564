"""What a check of the rubric's form says about solution and starter, without running them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from grading.assignments.editor.form import Problem, Raw, blank, read
from grading.assignments.legacy_import import Works
from grading.checks.context import Context
from grading.checks.evaluate import evaluate, outcome
from grading.checks.scope import COMMENT, Scopes, first_comments
from grading.documents import set_apart
from grading.domain.check import all_checks
from grading.domain.document import Cell, Document
from grading.domain.evidence import CheckOutcome
from grading.domain.pattern_steps import search_steps
from grading.domain.rubric import Criterion, Rubric
from grading.execution.plan import RunCheck

MOST_CHARS = 200_000
"""Of solution and starter together."""
MOST_STEPS = 2_000_000_000
"""Of a search by a regular expression at its worst, which is some seconds."""

_STAGE = str(Criterion.model_fields["stage"].default)


class Withheld(StrEnum):
    """Why a check is not looked at before it runs."""

    RUN = "run"
    SIZE = "size"
    PATTERN = "pattern"


@dataclass(frozen=True)
class Preview:
    """What a check says, or why it says nothing yet."""

    outcomes: Mapping[str, CheckOutcome] = field(default_factory=lambda: MappingProxyType({}))
    """Of `solution` and `starter`, as far as there are such files."""
    problems: tuple[Problem, ...] = ()
    withheld: Withheld | None = None


def preview(raw: Raw, works: Works) -> Preview:
    """What the first check of the form's first criterion says; the form has one."""
    rubric, problems = read(_alone(raw), (_STAGE,))
    if rubric is None:
        return Preview(problems=problems)
    withheld = _withheld(rubric.criteria[0], (*works.solution, *works.starter))
    if withheld is not None:
        return Preview(withheld=withheld)
    found = {
        name: _outcome(rubric, set_apart(documents, works.starter), works.solution)
        for name, documents in (("solution", works.solution), ("starter", works.starter))
        if documents
    }
    return Preview(outcomes=MappingProxyType(found))


def _alone(raw: Raw) -> Raw:
    """A rubric of this check only: what else is typed in the form may still be wrong."""
    one = raw["criteria"][0]
    kept = {"checks": one["checks"][:1], "where": one["where"]}
    criterion = {**blank(Criterion), **kept, "title": "-", "points": "1"}
    return {**blank(Rubric), "criteria": [criterion], "equivalents": raw["equivalents"]}


def _outcome(rubric: Rubric, work: Sequence[Document], solution: Sequence[Document]) -> CheckOutcome:
    (criterion,) = rubric.criteria
    check = criterion.checks[0]
    context = Context(Scopes(work), rubric, Scopes(solution), criterion.where)
    return outcome(check, evaluate(check, context), 1)


def _withheld(criterion: Criterion, documents: Sequence[Document]) -> Withheld | None:
    inside = list(all_checks(criterion.checks))
    if any(isinstance(one, RunCheck) and one.needs_run for one in inside):
        return Withheld.RUN
    cells = [cell for document in documents for cell in document.cells]
    sources, outputs = [cell.source for cell in cells], [out.text for cell in cells for out in cell.outputs]
    if sum(map(len, sources)) + sum(map(len, outputs)) > MOST_CHARS:
        return Withheld.SIZE
    places = [text for cell in cells for text in (cell.place, first_comments(cell), *_comment_lines(cell))]
    searches = [(criterion.where, places)]
    for one in inside:
        read_in = outputs if isinstance(one, RunCheck) else sources
        searches += [(pattern, read_in) for key in one.pattern_keys for pattern in getattr(one, key)]
        searches += [(one.where, places), (one.part, places)]
    slow = any(pattern and search_steps(pattern, texts) > MOST_STEPS for pattern, texts in searches)
    return Withheld.PATTERN if slow else None


def _comment_lines(cell: Cell) -> list[str]:
    """Where sections of a script and questions of a cell begin."""
    return [line[:300] for line in cell.lines if COMMENT.match(line[:300])]
