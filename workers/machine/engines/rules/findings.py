"""Static analysis of the student's own lines: remarks with places, and what to do better."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from grading.checks.parsing import LOOSE
from grading.domain.model import Cell, Document, Location
from workers.machine.engines.rules.facts import LONGEST_LINE, Facts, Line
from workers.machine.engines.rules.lines import LINE_RULES, UNNAMED_NUMBER, Advice, Remark
from workers.machine.engines.rules.nouns import Nouns


def remarks(facts: Facts) -> list[Remark]:
    """All remarks, the gravest first and each kind once with the place it first occurs."""
    order = {"major": 0, "minor": 1, "note": 2, "praise": 3}
    found = [
        *_errors(facts),
        *_syntax(facts),
        *_by_line(facts),
        *_not_run(facts),
        *_run_here(facts),
        *_whole(facts),
    ]
    once: dict[str, Remark] = {}
    for remark in found:
        once.setdefault(remark.title, remark)
    return sorted(once.values(), key=lambda r: order[r.severity])


def _speaks(line: Line, language: str) -> bool:
    own = line.cell.language.lower() or line.document.language.lower()
    return language == "any" or own == language or line.document.language.lower() == language


def _by_line(facts: Facts) -> Iterator[Remark]:
    nouns = Nouns.of(facts)
    for line in facts.code:
        for rule in LINE_RULES:
            text = line.text if rule.strings else line.bare
            if _speaks(line, rule.language) and rule.pattern.search(text):
                advice = rule.advice
                if rule.title == UNNAMED_NUMBER:
                    advice = replace(advice, example=nouns.constant)
                yield Remark(rule.severity, rule.title, rule.detail, line.location, advice)
        if len(line.text) > 120:
            yield Remark(
                "note", "A very long line", "More than 120 characters are hard to read.", line.location
            )


def _errors(facts: Facts) -> Iterator[Remark]:
    for document, cell, text in facts.errors:
        notebook = document.kind == "notebook"
        whole = "notebook" if notebook else "program"
        again = "Restart the kernel, run all cells" if notebook else "Run it in a new process"
        said = next((s.strip() for s in text.split("\n") if s.strip()), "an error")
        yield Remark(
            "major",
            _stops(document, cell),
            f"{'When the school ran it, it stopped' if cell.played else 'It stops'} with: {said[:110]}",
            Location(document=document.path, cell=cell.number if document.kind == "notebook" else None),
            Advice(
                f"Run the {whole} from top to bottom before you hand in",
                "Everything after an error works with old or missing values.",
                f"{again}, and read the first message that appears.",
                "",
            ),
        )


def _stops(document: Document, cell: Cell) -> str:
    if document.kind != "notebook":
        return "It ends in an error"
    return f"Cell {cell.number}{'' if cell.added else ', which was given,'} ends in an error"


def _not_run(facts: Facts) -> Iterator[Remark]:
    cells = facts.not_run
    if cells:
        document, cell = cells[0]
        numbers = ", ".join(str(c.number) for _, c in cells[:6])
        yield Remark(
            "major" if len(cells) > 2 else "minor",
            "Code that was not run",
            f"Cells without a result: {numbers}. A reader sees no result to judge.",
            Location(document=document.path, cell=cell.number),
            Advice(
                "Run every cell and save the notebook with its outputs",
                "Your results are what the reader needs.",
                "Use 'Restart and run all', then save.",
                "",
            ),
        )


def _run_here(facts: Facts) -> Iterator[Remark]:
    if facts.run_here and not facts.not_run and not facts.errors:
        document, cell = facts.run_here[0]
        yield Remark(
            "note",
            "Handed in without its outputs",
            "It ran when the school ran it. Save the notebook with its outputs, so that readers see them.",
            Location(document=document.path, cell=cell.number),
        )


_PARSE_ADVICE = Advice(
    "Let the program be read before you hand it in",
    "Nothing after the first mistake in spelling or brackets can run.",
    "Run it once: the message names the line, and the mistake is there or just above.",
    "",
)


_READ_ABOVE = frozenset({"python", "r"})


def _syntax(facts: Facts) -> Iterator[Remark]:
    """Python that does not parse, and R whose brackets do not close."""
    for document, cell in facts.cells:
        if cell.kind != "code" or not cell.added:
            continue
        cell_number = cell.number if document.kind == "notebook" else None
        language = cell.language.lower()
        if language == "python":
            source = re.sub(r"(?m)^\s*[%!].*$", "", cell.source)
            try:
                ast.parse(source)
            except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
                at = getattr(error, "lineno", None)
                line = cell.first_line + at - 1 if isinstance(at, int) and 0 < at <= len(cell.lines) else None
                detail = f"Python cannot read this code: {getattr(error, 'msg', 'too deeply nested')}."
                place = Location(document=document.path, cell=cell_number, line=line)
                yield Remark("major", "Code that does not parse", detail, place, _PARSE_ADVICE)
        elif language == "r":
            bare = "\n".join(Line(t[:LONGEST_LINE], document, cell, 0).bare for t in cell.lines)
            odd = [f"{a}{b}" for a, b in ("()", "[]", "{}") if bare.count(a) != bare.count(b)]
            if odd:
                place = Location(document=document.path, cell=cell_number)
                yield Remark(
                    "major",
                    "Brackets that do not match",
                    f"Count the pairs of {odd[0]}.",
                    place,
                    _PARSE_ADVICE,
                )
    yield from _grammar(facts)


def _grammar(facts: Facts) -> Iterator[Remark]:
    """Code of other languages that its grammar does not fit, as far as the student wrote it."""
    for piece in facts.pieces:
        read = piece.facts
        if read.language in _READ_ABOVE or read.language in LOOSE:
            continue
        line = next((n for n in read.errors if n in piece.added), None)
        if line is not None:
            detail = f"At line {line} the code does not follow the grammar of the language."
            yield Remark("major", "Code that does not parse", detail, piece.at(line), _PARSE_ADVICE)


_NO_VALUE = re.compile(r"^(?:\[1\] )?(?:NA|NaN|nan)$")


def _no_value(facts: Facts) -> Iterator[Remark]:
    for document, cell in facts.cells:
        if not cell.added or not any(_NO_VALUE.match(o.text.strip()) for o in cell.outputs):
            continue
        yield Remark(
            "major",
            "A result without a value",
            "The output is only NA: a missing value went into the calculation.",
            Location(document=document.path, cell=cell.number if document.kind == "notebook" else None),
            Advice(
                "Deal with missing values before you calculate",
                "One missing value makes the whole result NA.",
                "Look which column has gaps, decide what to do with those rows, then calculate again.",
                "",
            ),
        )


def _whole(facts: Facts) -> Iterator[Remark]:
    yield from _no_value(facts)
    yield from _copies(facts)
    yield from _missing_values(facts)
    yield from _unused(facts)


def _copies(facts: Facts) -> Iterator[Remark]:
    nouns = Nouns.of(facts)
    shapes = Counter(re.sub(r"\d+", "0", line.bare.strip()) for line in facts.code)
    for line in facts.code:
        shape = re.sub(r"\d+", "0", line.bare.strip())
        if shapes[shape] >= 3 and len(shape) > 15 and "(" in shape:
            yield Remark(
                "note",
                "Lines copied several times",
                f"{shapes[shape]} lines differ only in numbers or texts.",
                line.location,
                Advice(
                    "Write the step once",
                    "Every later change is then made in one place.",
                    f"Use a {nouns.step}, a loop, or a grouped call."
                    if nouns.data
                    else f"Use a {nouns.step} or a loop.",
                    "",
                ),
            )
            return


_AGGREGATE = re.compile(r"(?<![\w.])(mean|sum|median|sd|var|max|min)\s*\(")
_HANDLES_NA = re.compile(r"na\.rm|na\.omit|drop_na|is\.na|complete\.cases|fillna|dropna")


def _missing_values(facts: Facts) -> Iterator[Remark]:
    code = [line for line in facts.code if _speaks(line, "r")]
    if any(_HANDLES_NA.search(line.bare) for line in code):
        return
    for line in code:
        used = _AGGREGATE.search(line.bare)
        if used:
            name = used.group(1)
            yield Remark(
                "minor",
                f"{name}() without a word on missing values",
                "One NA among the values makes the whole result NA.",
                line.location,
                Advice(
                    "Decide what happens to missing values",
                    f"{name}() returns NA as soon as one value is missing.",
                    "Remove them first, or say na.rm = TRUE and write why.",
                    f"{name}(x, na.rm = TRUE)",
                ),
            )
            return


def _unused(facts: Facts) -> Iterator[Remark]:
    """A variable that is assigned and never read again, in any cell."""
    everything = "\n".join(cell.source for _, cell in facts.cells if cell.kind == "code")
    words = Counter(re.findall(r"[A-Za-z_.][\w.]*", everything))
    for line in facts.code:
        made = re.match(r"^([A-Za-z_.][\w.]*)\s*(?:<-|=(?!=))", line.bare)
        if made and words[made.group(1)] == 1 and not line.bare.rstrip().endswith((",", "(")):
            name = made.group(1)
            detail = f"{name} is made here and neither used nor shown afterwards."
            yield Remark("note", "A result that is never used", detail, line.location)
            return
