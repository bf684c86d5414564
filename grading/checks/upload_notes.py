"""Notes on uploaded files before they are submitted, found without running them.

Only what a student may know: no check that compares with a solution or a pattern is run, so that nobody finds
out by trying what the rubric looks for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from grading.checks.context import Context
from grading.checks.evaluate import FULL, evaluate, label_of
from grading.checks.kind import CheckKind
from grading.checks.kinds.prose import PLACEHOLDER
from grading.checks.kinds.tests import PassesTests, matching
from grading.checks.parsing.parser import LOOSE
from grading.checks.scope import Scopes, executed, runs_recorded
from grading.documents import set_apart
from grading.documents.line_comparison import says_something
from grading.domain.base_value import Value
from grading.domain.document import Cell, Document
from grading.domain.messages import Message
from grading.domain.rubric import Criterion, Rubric
from grading.execution.plan import run_checks
from grading.execution.test_files import file_name

COMPARED_CHARS = 300_000
"""Longest submission that is compared with the starter and checked at once."""
SHOWN = 12
"""Places or names of one kind that are kept."""


class ReadDocument(Value):
    """One document as it was read. Cells are named by their numbers; in scripts everything is one cell."""

    path: str
    kind: str
    language: str
    lines: int
    cells: int
    code: int
    """Code cells."""
    text: int
    """Cells of prose."""
    unexecuted: tuple[int, ...] = ()
    silent: tuple[int, ...] = ()
    """Code cells that were run, or not, and show no output."""
    errors: tuple[int, ...] = ()
    placeholders: tuple[str, ...] = ()
    """Places where a TODO is left, such as `cell 3` or `line 12`."""
    classes: int = 0
    """Classes, interfaces and the like, with those that came with the task."""
    functions: int = 0
    """Functions, methods and constructors, likewise."""
    comments: int = 0
    """Lines of comments and documentation, likewise; code that was commented out does not count."""
    unparsed: tuple[str, ...] = ()
    """Places where the code does not follow the grammar of its language."""
    unchanged: bool = False
    """Nothing was added to what came with the task."""
    notes: tuple[str, ...] = ()


class ReadCheck(Value):
    """A check of the rubric that needed no run."""

    label: str
    share: float
    message: Message


class Reading(Value):
    """What was received, in numbers and places."""

    documents: tuple[ReadDocument, ...] = ()
    notes: tuple[str, ...] = ()
    """What was left out or repaired, a sentence each."""
    compared: bool = True
    """It was short enough to be compared with the starter and checked."""
    checks: tuple[ReadCheck, ...] = ()
    tests: tuple[str, ...] = ()
    """Names of tests that will be run and that students may know of."""
    hidden_tests: bool = False
    """There are tests nobody is told about."""

    @property
    def unchanged(self) -> bool:
        """Whether there is nothing of the student's own in any document."""
        return bool(self.documents) and all(document.unchanged for document in self.documents)


def reading(
    documents: Sequence[Document],
    notes: Sequence[str],
    rubric: Rubric,
    starter: Sequence[Document] = (),
    tests: Mapping[str, str] | Sequence[str] = (),
) -> Reading:
    """What these documents hold. `tests` are the paths of the assignment's test files."""
    compared = sum(len(cell.source) for d in documents for cell in d.cells) <= COMPARED_CHARS
    mine = set_apart(documents, starter) if compared else tuple(documents)
    names, hidden = _tests(rubric, tests)
    scopes = Scopes(mine)
    return Reading(
        documents=tuple(_document(document, scopes, compared) for document in mine),
        notes=tuple(notes),
        compared=compared,
        checks=tuple(_checks(scopes, rubric)) if compared else (),
        tests=names,
        hidden_tests=hidden,
    )


def _document(document: Document, scopes: Scopes, compared: bool) -> ReadDocument:
    code = [cell for cell in document.cells if cell.kind == "code" and cell.source.strip()]
    recorded = runs_recorded(document)
    quiet = [c for c in code if not any(o.image or o.text.strip() for o in c.outputs)] if recorded else []
    return ReadDocument(
        path=document.path,
        kind=document.kind,
        language=document.language,
        lines=sum(len(cell.lines) for cell in document.cells),
        cells=len(document.cells),
        code=len(code),
        text=sum(cell.kind != "code" and bool(cell.source.strip()) for cell in document.cells),
        unexecuted=_numbers(cell for cell in code if recorded and not executed(cell)),
        silent=_numbers(cell for cell in quiet if executed(cell)),
        errors=_numbers(cell for cell in code if any(o.kind == "error" for o in cell.outputs)),
        placeholders=tuple(_placeholders(document))[:SHOWN],
        **(_parsed(document, scopes) if compared else {}),
        unchanged=compared and not any(cell.added for cell in document.cells) and _given(document),
        notes=document.notes,
    )


def _parsed(document: Document, scopes: Scopes) -> dict[str, Any]:
    """What the code of a document defines and comments, and where it does not parse."""
    found = [
        (c, scopes.reader.facts(c.source, c.language or document.language))
        for c in document.cells
        if c.kind == "code"
    ]
    kinds = [definition.kind for _, facts in found for definition in facts.definitions]
    said = (c.text for _, facts in found for c in facts.comments if not c.code)
    places = [
        f"cell {cell.number}"
        if document.kind == "notebook"
        else f"line {cell.first_line + facts.errors[0] - 1}"
        for cell, facts in found
        if facts.errors and facts.language not in LOOSE
    ]
    return {
        "classes": sum(kind in ("class", "interface") for kind in kinds),
        "functions": sum(kind in ("function", "method", "constructor") for kind in kinds),
        "comments": sum(bool(line.strip()) for text in said for line in text.split("\n")),
        "unparsed": tuple(places[:SHOWN]),
    }


def _given(document: Document) -> bool:
    """Whether what is in it may come with the task; brackets alone may not."""
    says = any(says_something(cell) for cell in document.cells)
    return says or not any(cell.source.strip() for cell in document.cells)


def _numbers(cells: Iterator[Cell]) -> tuple[int, ...]:
    return tuple(cell.number for cell in cells)


def _placeholders(document: Document) -> Iterator[str]:
    for cell in document.cells:
        for number, line in enumerate(cell.lines, start=cell.first_line):
            if PLACEHOLDER.search(line[:2000]):
                yield f"cell {cell.number}" if document.kind == "notebook" else f"line {number}"
                if document.kind == "notebook":
                    break


def _checks(mine: Scopes, rubric: Rubric) -> Iterator[ReadCheck]:
    nothing = Scopes(())
    for criterion in rubric.criteria:
        context = Context(mine, rubric, nothing, criterion.where)
        for check in _plain(criterion):
            found = evaluate(check, context)
            if found.earned is not None:
                share = 1.0 if found.earned >= min(FULL, check.cap) else found.earned
                yield ReadCheck(label=label_of(check), share=share, message=found.message)


def _plain(criterion: Criterion) -> Iterator[CheckKind]:
    """Those that may be run at once; patterns and parts of combined checks would tell what is looked for."""
    for check in criterion.checks:
        patterns = any(getattr(check, key) for key in check.pattern_keys)
        if isinstance(check, CheckKind) and check.at_once and not patterns:
            yield check


def _tests(rubric: Rubric, paths: Mapping[str, str] | Sequence[str]) -> tuple[tuple[str, ...], bool]:
    files = dict.fromkeys(paths, "")
    names: list[str] = []
    hidden = False
    for check in run_checks(rubric):
        if not isinstance(check, PassesTests):
            continue
        hidden = hidden or check.hidden or any(case.hidden for case in check.cases)
        if check.hidden or check.show == "nothing":
            continue
        names += [
            case.name or (case.expression if check.show in ("everything", "input") else "")
            for case in check.cases
            if not case.hidden
        ]
        names += [file_name(path) for path in matching(check, files)]
    return tuple(dict.fromkeys(name[:200] for name in names if name)), hidden
