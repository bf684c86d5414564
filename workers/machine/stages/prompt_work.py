"""One student's own part of a prompt, as pieces: the evidence criterion by criterion, then the documents.

All words in it may be the student's, so every line is defused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from grading.domain.jobs import Job
from grading.domain.model import Cell, CheckOutcome, Document, Output
from grading.domain.rubric import Criterion
from workers.machine.sanitize import defuse, flat, smuggled
from workers.machine.stages.prompt_tests import counted, failed
from workers.machine.stages.truncation import Piece

_MOST_CELLS = 8
"""More cells than these are no help to whoever looks for the right one."""
_LONGEST_PLACE = 4_000


def pieces_of_work(job: Job) -> Iterator[Piece]:
    """The hand-in in the order in which it is read."""
    yield from pieces_of_evidence(job)
    for number, document in enumerate(job.documents, start=1):
        yield from _document(document, number, job.nonce)
    if not job.documents:
        yield Piece("heading", ("", "== No readable file was handed in =="))


def pieces_of_evidence(job: Job) -> Iterator[Piece]:
    """What checks and tests found for each criterion; of other stages' criteria only the numbers.

    The evidence of a job holds only what the student may see of a test.
    """
    head = ("== Evidence, criterion by criterion ==", f"lines the student wrote: {job.evidence.added_lines}")
    yield Piece("heading", head)
    for criterion in job.rubric.of_stage(job.stage):
        yield from _own(job, criterion)
    others = [line for c in job.rubric.criteria if c.stage != job.stage for line in _numbers(job, c)]
    if others:
        yield Piece("heading", _defused(("", "judged by someone else:", *others), job.nonce))


def _own(job: Job, criterion: Criterion) -> Iterator[Piece]:
    found = job.evidence.of(criterion.id)
    share = f"checks {found.share:.2f} of 1" if found and found.share is not None else "no checks"
    cells = _cells(job, criterion)
    lines = ["", f"{criterion.id} ({flat(criterion.title)}): {share}{f'; look at {cells}' if cells else ''}"]
    for outcome in found.outcomes if found else ():
        earned = f"{outcome.earned:.2f}" if outcome.weight else "not counted:"
        lines.append(f"  - {earned} {_said(outcome)}")
        if shown := tuple(failed(outcome.tests)):
            yield Piece("heading", _defused(tuple(lines), job.nonce))
            yield Piece("output", _defused(shown, job.nonce))
            lines = []
    if lines:
        yield Piece("heading", _defused(tuple(lines), job.nonce))


def _numbers(job: Job, criterion: Criterion) -> Iterator[str]:
    found = job.evidence.of(criterion.id)
    if found is not None and found.share is not None:
        tests = tuple(test for outcome in found.outcomes for test in outcome.tests)
        said = f"; {counted(tests)}" if tests else ""
        yield f"  {criterion.id}: checks {found.share:.2f} of 1{said}"


def _said(outcome: CheckOutcome) -> str:
    name, message = flat(outcome.label or outcome.check), flat(outcome.message)
    return ": ".join(filter(None, (name, "" if message == name else message, counted(outcome.tests))))


def _cells(job: Job, criterion: Criterion) -> str:
    """The cells whose headings and comments the criterion's pattern finds, where that narrows it down."""
    if criterion.where is None:
        return ""
    try:
        pattern = re.compile(criterion.where, re.IGNORECASE)
    except re.error:
        return ""
    every = [(n, cell) for n, document in enumerate(job.documents, start=1) for cell in document.cells]
    found = [f"{n}:{cell.number}" for n, cell in every if pattern.search(cell.place[:_LONGEST_PLACE])]
    if not 0 < len(found) < min(len(every), _MOST_CELLS + 1):
        return ""
    return f"cell{'' if len(found) == 1 else 's'} {', '.join(found)}"


def _defused(lines: tuple[str, ...], nonce: str) -> tuple[str, ...]:
    return tuple(defuse(line, nonce).replace("\n", " ") for line in lines)


def _document(document: Document, number: int, nonce: str) -> Iterator[Piece]:
    head = f"== Document {number}: {flat(document.path)} ({document.kind}, {document.language}) =="
    notes = (f"note: {flat(note)}" for note in document.notes)
    yield Piece("heading", _defused(("", head, *notes), nonce))
    for cell in document.cells:
        yield from _cell(document, cell, number, nonce)


def _cell(document: Document, cell: Cell, number: int, nonce: str) -> Iterator[Piece]:
    idle = cell.kind == "code" and cell.execution_count is None and not cell.outputs
    state = ""
    if document.kind == "notebook" and idle:
        state = ", not run" if not cell.played else ", handed in without its output"
    yield Piece("heading", (f"-- {number}:{cell.number}, {cell.kind}{state} --",))
    added = frozenset(cell.added)
    lines = tuple(
        f"{'+' if n in added else ' '} {cell.first_line + n - 1}| {defuse(line, nonce)}".replace(
            "\n", " "
        ).rstrip()
        for n, line in enumerate(cell.lines, start=1)
    )
    yield Piece("code" if cell.kind == "code" else "prose", lines, added=bool(added))
    for output in cell.outputs:
        yield _output(f"output ({output.kind}):", output, nonce)
    for output in cell.played:
        nothing = "" if output.text.strip() or output.image else " nothing"
        yield _output(f"output ({output.kind}) when the school ran it:{nothing}", output, nonce)


def _output(label: str, output: Output, nonce: str) -> Piece:
    text = defuse(output.text, nonce).rstrip()
    lines = [f"| {line}" for line in text.split("\n")] if text else []
    if output.image:
        lines.append("| [a picture]")
    return Piece("output", (label, *lines))


def smuggled_in(job: Job) -> int:
    """Invisible characters in what the student wrote and showed that no ordinary writing needs."""
    found = 0
    for document in job.documents:
        for cell in document.cells:
            found += sum(map(smuggled, cell.own.split("\n")))
            found += sum(smuggled(line) for output in cell.outputs for line in output.text.split("\n"))
    return found
