"""What a check of the rubric's form says about solution and starter, without running them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import comb
from types import MappingProxyType

from grading.assignments.editor.form import Problem, Raw, blank, read
from grading.assignments.legacy_import import Works
from grading.checks.context import Context
from grading.checks.evaluate import evaluate, outcome
from grading.checks.scope import Scopes
from grading.documents import set_apart
from grading.domain.check import CheckBase, all_checks
from grading.domain.document import Document
from grading.domain.evidence import CheckOutcome
from grading.domain.patterns import MAX_TEXT, unbounded_repeats
from grading.domain.rubric import Criterion, Rubric
from grading.execution.plan import RunCheck

MOST_CHARS = 200_000
"""Of solution and starter together."""
MOST_STEPS = 1_000_000_000
"""Of a search by a regular expression at its worst, which is about a second."""

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
    texts = [text for document in documents for cell in document.cells for text in (cell.source, cell.place)]
    outputs = [out.text for document in documents for cell in document.cells for out in cell.outputs]
    if sum(map(len, texts)) + sum(map(len, outputs)) > MOST_CHARS:
        return Withheld.SIZE
    searches = [
        (p, outputs if isinstance(one, RunCheck) else texts) for one in inside for p in _patterns(one)
    ]
    searches += [(criterion.where, texts)] if criterion.where else []
    return Withheld.PATTERN if any(_steps(*one) > MOST_STEPS for one in searches) else None


def _patterns(check: CheckBase) -> Iterator[str]:
    yield from (pattern for key in check.pattern_keys for pattern in getattr(check, key))
    yield from (pattern for pattern in (check.where, check.part) if pattern)


def _steps(pattern: str, texts: Sequence[str]) -> int:
    """A search begins anywhere, and each repeat may end anywhere behind."""
    ways = unbounded_repeats(pattern) + 1
    return sum(comb(min(len(text), MAX_TEXT) + ways, ways) for text in texts)
