"""Documents made by hand for the tests of evidence."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from grading.checks import collect
from grading.domain.check import Check
from grading.domain.document import Cell, Document, Output
from grading.domain.evidence import CheckOutcome
from grading.domain.rubric import Criterion, Rubric


def cell(
    source: str,
    *,
    number: int = 1,
    kind: Literal["code", "markdown"] = "code",
    language: str = "r",
    place: str = "",
    added: Iterable[int] | None = None,
    outputs: tuple[Output, ...] = (),
    count: int | None = None,
) -> Cell:
    """A cell whose lines are all the student's unless `added` says otherwise."""
    lines = range(1, source.count("\n") + 2) if added is None else added
    return Cell(
        number=number,
        kind=kind,
        source=source,
        language=language if kind == "code" else "markdown",
        place=place,
        added=tuple(lines),
        outputs=outputs,
        execution_count=count,
    )


def notebook(*cells: Cell, path: str = "work.ipynb", language: str = "r") -> Document:
    numbered = tuple(c.model_copy(update={"number": n}) for n, c in enumerate(cells, start=1))
    return Document(path=path, kind="notebook", language=language, cells=numbered)


def script(
    source: str, *, path: str = "work.R", language: str = "r", added: Iterable[int] | None = None
) -> Document:
    return Document(
        path=path, kind="script", language=language, cells=(cell(source, language=language, added=added),)
    )


def shown(text: str) -> tuple[Output, ...]:
    return (Output(kind="stream", text=text),)


def outcome(
    check: Check,
    *documents: Document,
    where: str | None = None,
    solution: tuple[Document, ...] = (),
    equivalents: dict[str, tuple[str, ...]] | None = None,
) -> CheckOutcome:
    """What one check says about documents."""
    criterion = Criterion(id="it", title="It", points=1, checks=(check,), where=where)
    rubric = Rubric(criteria=(criterion,), equivalents=equivalents or {})
    return collect(documents, rubric, solution).criteria[0].outcomes[0]
