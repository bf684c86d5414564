"""A first rubric without a model: what the solution calls, makes and shows, as checks to be edited."""

from __future__ import annotations

import keyword
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from grading.checks.kinds.code import Defines, Uses
from grading.checks.kinds.outputs import AllExecuted, HasOutput, NoErrors
from grading.checks.kinds.prose import NoTodo, Words
from grading.checks.parsing.code_facts import CodeFacts, Mention
from grading.checks.parsing.parser import FactReader
from grading.checks.scope import Scopes
from grading.domain.check import Check
from grading.domain.document import Document
from grading.domain.rubric import Criterion, Rubric

MOST_NAMES = 8
FEWEST_LINES = 5
"""Lines of one's own before running without an error says anything."""
EVERYWHERE = frozenset("print library require cat str len range list dict int float format paste c".split())
"""Calls that say little about a solution."""


def template(solution: Sequence[Document], feedback: bool = True) -> Rubric:
    """A rubric made from a solution; without one, that of any homework. `feedback`: there is such a stage."""
    calls, made = _found(solution)
    parts = [_functions(calls), _results(made), _runs(solution)]
    criteria = [one for one in parts if one is not None]
    if feedback:
        words: Check = Words(at_least=50)
        criteria.append(
            Criterion(
                id="explains",
                title="Explains what was done and why",
                stage="feedback",
                points=10,
                checks=(words,),
            )
        )
    return Rubric(criteria=tuple(criteria))


def _functions(calls: Sequence[str]) -> Criterion | None:
    if not calls:
        return None
    title = "Uses the functions the task asks for"
    return Criterion(id="functions", title=title, points=10, checks=(Uses(all_of=tuple(calls)),))


def _results(made: Sequence[str]) -> Criterion | None:
    if not made:
        return None
    return Criterion(
        id="results", title="Makes the results", points=10, checks=(Defines(all_of=tuple(made)),)
    )


def _runs(solution: Sequence[Document]) -> Criterion:
    least = min(FEWEST_LINES, _own_lines(solution)) if solution else FEWEST_LINES
    checks: list[Check] = [NoErrors(own_lines=least), NoTodo()]
    if any(document.kind == "notebook" for document in solution):
        checks.append(AllExecuted(own_lines=least))
    if any(cell.outputs for document in solution for cell in document.cells):
        checks.append(HasOutput())
    return Criterion(id="runs", title="Complete and without errors", points=5, checks=tuple(checks))


def _own_lines(solution: Iterable[Document]) -> int:
    """Lines of code that the solution adds to the starter."""
    return sum(piece.own_code for piece in Scopes(tuple(solution)).find().pieces)


def _found(solution: Iterable[Document]) -> tuple[list[str], list[str]]:
    """Names the solution's own lines call and make, those that are met most often first."""
    reader = FactReader()
    calls: Counter[str] = Counter()
    made: Counter[str] = Counter()
    for document in solution:
        for cell in document.cells:
            if cell.kind != "code":
                continue
            facts = reader.facts(cell.source, cell.language)
            own = set(cell.added)
            calls.update(one for one in _names(facts.calls, own) if one.lower() not in EVERYWHERE)
            made.update(_names(_makes(facts), own))
    defined = set(made)
    wanted = [name for name, _ in calls.most_common() if name not in defined]
    return wanted[:MOST_NAMES], [name for name, _ in made.most_common(MOST_NAMES)]


def _makes(facts: CodeFacts) -> tuple[Mention, ...]:
    return facts.defines


def _names(mentions: Iterable[Mention], own: set[int]) -> Iterator[str]:
    """Names on the student's side of the work; operators are no names."""
    for one in mentions:
        if (
            (not own or one.first in own)
            and one.name.isidentifier()
            and len(one.name) > 1
            and one.name not in keyword.kwlist
        ):
            yield one.name
