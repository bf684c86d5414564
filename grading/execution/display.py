"""What running a submission showed, as people see it: bounded, storable, and of the student's own work only.

It holds no test, no expected value and nothing of the instructor's, so a student may see all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pydantic import Field

from grading.domain.base_value import Value
from grading.domain.document import Cell, Document, Output
from grading.execution.path_repair import Repair
from grading.execution.plan import Plan
from grading.execution.results import Ran
from grading.execution.values import Ended, Execution, Played

MOST_BYTES = 200_000
"""Of all outputs and errors of a submission together, as UTF-8."""
LONGEST = 8_000
"""Characters of one output."""
MOST_OUTPUTS = 50
"""Of one cell."""
MOST_CELLS = 2_000
MOST_REPAIRS = 50
LONGEST_ERROR = 500
LEFT_OUT = "… (the rest of what came out is left out)"
PLAYED_CHARS = 4_000
"""Characters of one cell's outputs that a job carries."""


class ShownDocument(Ended):
    """What running one document showed, cell by cell; a script has one cell."""

    path: str
    cells: tuple[Played, ...] = ()
    repairs: tuple[Repair, ...] = ()
    missing: tuple[str, ...] = ()
    """Packages of the assignment that the server does not have."""
    unknown: tuple[str, ...] = ()
    """Packages that the server does not have and nothing of the assignment asks for."""
    excused: tuple[int, ...] = ()
    """Cells that did not run for want of a package, a file or the network, and those after them."""

    def cell(self, number: int) -> Played | None:
        """What became of one cell."""
        return next((played for played in self.cells if played.number == number), None)


class ShownExecution(Value):
    """What running a submission showed: by path, the documents that were run."""

    documents: Mapping[str, ShownDocument] = Field(default_factory=dict)
    sandbox: str = ""
    image: str = ""
    seconds: float = 0.0
    """Of all its executions together."""


class _Room:
    """Bytes of output that are left."""

    def __init__(self, left: int) -> None:
        self.left = left

    def take(self, text: str, most: int) -> str:
        """The text as far as there is room for it, with a note where something is left out."""
        clean = _storable(text)
        kept = clean[:most]
        raw = kept.encode()
        if len(raw) > self.left:
            kept = raw[: max(self.left, 0)].decode(errors="ignore")
        self.left -= min(len(raw), max(self.left, 0))
        return kept if len(kept) == len(clean) else f"{kept}\n{LEFT_OUT}"


def shown(plan: Plan, executions: Mapping[str, Execution]) -> ShownExecution:
    """What the executions of a plan showed of the student's own documents; one not run has no entry."""
    room, seen = _Room(MOST_BYTES), Ran(plan, executions)
    documents = {
        path: _document(path, executions[key], seen, room)
        for path, key in plan.works.items()
        if key in executions
    }
    ran = [execution for execution in executions.values() if execution.end != "not run"]
    return ShownExecution(
        documents=documents,
        sandbox=next((execution.sandbox for execution in ran), ""),
        image=next((execution.image for execution in ran), ""),
        seconds=round(sum(execution.seconds for execution in ran), 3),
    )


def _document(path: str, execution: Execution, seen: Ran, room: _Room) -> ShownDocument:
    names = [_storable(name)[:100] for name in execution.missing]
    own = [repair for repair in seen.plan.repairs if repair.location.document == path]
    return ShownDocument(
        path=path,
        end=execution.end,
        reason=_storable(execution.reason)[:LONGEST_ERROR],
        code=execution.code,
        params=execution.params,
        cells=tuple(
            _cell(played, room) for played in execution.cells[:MOST_CELLS] if execution.end != "not run"
        ),
        repairs=tuple(own[:MOST_REPAIRS]),
        missing=tuple(name for name in names if name in seen.plan.known),
        unknown=tuple(name for name in names if name not in seen.plan.known),
        excused=tuple(sorted(seen.excused(path, also_elsewhere=True)))[:MOST_CELLS],
    )


def _cell(played: Played, room: _Room) -> Played:
    """One cell; of an error only its line stays: a traceback leads through code that is not the student's."""
    kept = []
    for output in [output for output in played.outputs if output.kind != "error"][:MOST_OUTPUTS]:
        if room.left <= 0 and not output.image:
            kept.append(output.model_copy(update={"text": LEFT_OUT}))
            break
        kept.append(output.model_copy(update={"text": room.take(output.text, LONGEST)}))
    error = " ".join(_storable(played.error).split())[:LONGEST_ERROR]
    return played.model_copy(update={"outputs": tuple(kept), "error": error})


def _storable(text: str) -> str:
    """Without what databases and UTF-8 do not take: NUL and half characters."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def add_played(documents: Sequence[Document], execution: ShownExecution | None) -> tuple[Document, ...]:
    """The documents for a machine: code cells submitted without outputs get those of the school's run."""
    if execution is None:
        return tuple(documents)
    return tuple(
        document.model_copy(update={"cells": tuple(_filled(document, found))})
        if (found := execution.documents.get(document.path)) is not None
        else document
        for document in documents
    )


def _filled(document: Document, found: ShownDocument) -> Iterator[Cell]:
    for cell in document.cells:
        played = found.cell(cell.number)
        if played is None or cell.kind != "code" or cell.outputs:
            yield cell
            continue
        yield cell.model_copy(update={"played": tuple(_outputs(cell, played, found))})


def _outputs(cell: Cell, played: Played, found: ShownDocument) -> Iterator[Output]:
    """What a cell put out, its error last; one empty output when it ran and put out nothing.

    What did not run for want of something that is not here is not told: it may be no fault of the work.
    """
    if played.state == "not reached" or played.number in found.excused:
        return
    left = PLAYED_CHARS
    for output in played.outputs:
        text = output.text if len(output.text) <= left else f"{output.text[:left]}\n{LEFT_OUT}"
        yield output.model_copy(update={"text": text})
        left -= len(output.text)
        if left <= 0:
            break
    if played.state == "too long":
        yield Output(kind="error", text="It took too long and was stopped.")
    elif played.state == "failed":
        yield Output(kind="error", text=played.error or "It stopped with an error.")
    if played.state == "ran" and not played.outputs and cell.execution_count is None:
        yield Output(kind="stream")
