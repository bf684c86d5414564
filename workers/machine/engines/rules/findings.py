"""Static analysis of the student's own lines and tests: remarks with places, and what to do better."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from grading.checks.parsing.parser import LOOSE
from grading.domain.document import Cell, Document, Location
from grading.domain.evidence import CheckOutcome, TestOutcome
from grading.domain.jobs import Job
from grading.domain.rubric import Criterion
from grading.shared import python_syntax
from workers.machine.engines.rules.facts import LONGEST_LINE, Facts, Line, Nouns

Severity = Literal["praise", "note", "minor", "major"]


@dataclass(frozen=True)
class Advice:
    """What to do, why, how, and a short example."""

    what: str
    why: str
    how: str
    example: str


@dataclass(frozen=True)
class Remark:
    """One finding, and advice where there is some."""

    severity: Severity
    title: str
    detail: str
    location: Location | None = None
    advice: Advice | None = None


@dataclass(frozen=True)
class LineRule:
    """A remark for every line that matches."""

    language: Literal["r", "python", "any"]
    pattern: re.Pattern[str]
    severity: Severity
    title: str
    detail: str
    advice: Advice
    strings: bool = False
    """Whether what is inside strings counts."""


_RELATIVE = Advice(
    "Use relative paths",
    "A path on your computer does not exist on other computers.",
    "Keep the files in a folder next to your code and use paths relative to it.",
    '"data/input.csv"',
)

UNNAMED_NUMBER = "Magic number"

LINE_RULES = (
    LineRule(
        "any",
        re.compile(r"""["'](?:[A-Za-z]:[\\/]|/(?:home|Users|mnt|content)/|~/)"""),
        "minor",
        "Absolute path",
        "This path exists only on your computer, so the line fails on others.",
        _RELATIVE,
        strings=True,
    ),
    LineRule(
        "r",
        re.compile(r"\bsetwd\s*\("),
        "minor",
        "setwd() in the code",
        "It changes the working directory for all later code and fails on other computers.",
        _RELATIVE,
    ),
    LineRule(
        "r",
        re.compile(r"(?<![\w.$])[TF](?![\w.(]|\s*(?:<-|=[^=]))"),
        "note",
        "T or F instead of TRUE or FALSE",
        "T and F are ordinary variables that can be overwritten.",
        Advice(
            "Write TRUE and FALSE", "T and F can be redefined by accident.", "Spell them out.", "na.rm = TRUE"
        ),
    ),
    LineRule(
        "r",
        re.compile(r"\battach\s*\("),
        "minor",
        "attach() hides where names come from",
        "Columns then mix with your own variables and can mask them.",
        Advice(
            "Name the data where you use it",
            "It keeps columns and variables apart.",
            "Use the pipe, with(), or the dollar sign.",
            "with(sales, sum(units))",
        ),
    ),
    LineRule(
        "r",
        re.compile(r"[!=]=\s*NA\b"),
        "major",
        "Comparison with NA",
        "A comparison with NA gives NA, never TRUE, so the condition never holds.",
        Advice(
            "Test for missing values with is.na()",
            "NA means unknown, and unknown == NA is unknown too.",
            "Replace the comparison by is.na(), with ! for its opposite.",
            "filter(!is.na(column))",
        ),
    ),
    LineRule(
        "python",
        re.compile(r"[!=]=\s*None\b"),
        "minor",
        "Comparison with None by ==",
        "None is a single object, and objects can redefine ==.",
        Advice(
            "Compare with `is`",
            "It compares the identity of the object.",
            "Write `is None`.",
            "if value is None:",
        ),
    ),
    LineRule(
        "python",
        re.compile(r"^\s*except\s*:"),
        "major",
        "Bare except",
        "It also catches typing mistakes and Ctrl-C, so real errors go unnoticed.",
        Advice(
            "Catch only the error you expect",
            "All other errors should stop the program.",
            "Name the class of the exception.",
            "except ValueError:",
        ),
    ),
    LineRule(
        "r",
        re.compile(r"(\w+)\s*<-\s*(?:c|append|rbind|cbind|bind_rows)\s*\(\s*\1\s*,"),
        "minor",
        "A vector that grows in a loop",
        "Each step copies the whole vector, which is slow with large data.",
        Advice(
            "Use one call for the whole vector",
            "R is fast with whole vectors and slow when vectors grow.",
            "Use a vectorised expression or sapply().",
            "revenue <- units * unit_price",
        ),
    ),
    LineRule(
        "python",
        re.compile(r"(\w+)\s*=\s*\1\s*\+\s*\[|(\w+)\s*=\s*(?:pd\.)?concat\(\s*\[\s*\2\s*,"),
        "minor",
        "A list that is copied in every step",
        "Each step copies the whole list.",
        Advice(
            "Append or use a comprehension", "It avoids the copies.", "Collect first.", "rows.append(row)"
        ),
    ),
    LineRule(
        "any",
        re.compile(r"\b(?:TODO|FIXME)\b|your (?:code|answer) here", re.IGNORECASE),
        "minor",
        "Placeholder not removed",
        "It is not clear whether this part is finished.",
        Advice(
            "Finish the open parts and remove the placeholders",
            "A placeholder looks like missing work.",
            "Search the file for TODO before you submit.",
            "",
        ),
        strings=True,
    ),
    LineRule(
        "any",
        re.compile(r"[<>]=?\s*(?!0\b|1\b)\d{2,}(?:\.\d+)?\b|[*/]\s*0\.\d{2,}\b"),
        "note",
        UNNAMED_NUMBER,
        "It is not clear where this number comes from or what it means.",
        Advice(
            "Give the number a name",
            "A name explains the number, and there is one place to change it.",
            "Put it in a constant or a variable at the top.",
            "min_units = 10",
        ),
    ),
)


_TOLD = 60
"""Characters of an input, a value or a message in a remark."""


@dataclass(frozen=True)
class Tested:
    """One check with tests, and its criterion."""

    criterion: Criterion
    outcome: CheckOutcome

    @property
    def failed(self) -> tuple[TestOutcome, ...]:
        """The tests that failed; those that say something about themselves first."""
        failed = (test for test in self.outcome.tests if not test.passed)
        return tuple(sorted(failed, key=lambda test: (test.hidden, not (test.input or test.name))))

    @property
    def name(self) -> str:
        """How to call the check."""
        return self.outcome.label or self.criterion.title


def tested(job: Job) -> tuple[Tested, ...]:
    """The checks of the whole rubric that have tests."""
    return tuple(
        Tested(criterion, outcome)
        for criterion in job.rubric.criteria
        if (found := job.evidence.of(criterion.id)) is not None
        for outcome in found.outcomes
        if outcome.tests
    )


def remarks_on_tests(job: Job, stages: tuple[str, ...] = ()) -> tuple[list[Remark], list[Remark]]:
    """For each check with tests what failed, and praise where nothing did; only of `stages`, if there are."""
    wanted = [one for one in tested(job) if not stages or one.criterion.stage in stages]
    return [_failing(one) for one in wanted if one.failed], [_praise(one) for one in wanted if not one.failed]


def passed_sentence(job: Job) -> Iterator[str]:
    """How many tests the work passed, in a sentence; nothing without tests."""
    tests = [test for one in tested(job) for test in one.outcome.tests]
    passed = sum(test.passed for test in tests)
    if tests and passed == len(tests):
        yield f"When your submission was run on the server, it passed {_all(len(tests))}."
    elif tests:
        yield f"When your submission was run on the server, it passed {passed} of {_tests(len(tests))}."


def _praise(one: Tested) -> Remark:
    number = len(one.outcome.tests)
    passes = "The test passes" if number == 1 else f"All {number} tests pass"
    said = f"'{one.name}': when run on the server, your code passed {_all(number)}."
    return Remark("praise", passes, said, one.outcome.location)


def _failing(one: Tested) -> Remark:
    tests, failed = one.outcome.tests, one.failed
    first = failed[0]
    fail = "fails" if len(failed) == 1 else "fail"
    return Remark(
        "major",
        f"{len(failed)} of {_tests(len(tests))} {fail} in '{one.name}'",
        _first(first),
        one.outcome.location,
        _advice(first),
    )


def _advice(test: TestOutcome) -> Advice:
    """What to do about a test, by what of it the student is shown."""
    example = test.input if 0 < len(test.input) <= _TOLD and not test.hidden else ""
    why = "One failing input shows where the error is."
    if test.hidden or test.show in ("nothing", "name") or not (test.input or test.message):
        how = "Try empty, very large and unusual inputs, and compute by hand what each should return."
        return Advice("Test your code with inputs of your own", why, how, example)
    if test.expected or (test.message and test.show == "everything"):
        how = "Run the code with the input and compare the result with the expected value."
    else:
        how = "Run the code with the input, and compute by hand what it should return."
    return Advice("Try the failing test yourself", why, how, example)


def _first(test: TestOutcome) -> str:
    """What went wrong with one test, as far as it may be told."""
    if test.hidden:
        return "Only hidden tests fail. Try inputs that are empty, very large or unusual."
    called = _short(test.input or test.name)
    if not called or test.show == "nothing":
        return "The failing tests are not shown. Try inputs that are empty, very large or unusual."
    if test.got:
        expected = f", expected {_short(test.expected)}" if test.expected else ""
        return f"{called} gives {_short(test.got)}{expected}."
    return f"{called} fails{f': {_short(test.message)}' if test.message else ''}."


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _TOLD else f"{flat[:_TOLD]}…"


def _tests(number: int) -> str:
    return f"{number} test{'' if number == 1 else 's'}"


def _all(number: int) -> str:
    return "its test" if number == 1 else f"all {number} tests"


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
            f"{'When run on the server, it stopped' if cell.played else 'It stops'} with: {said[:110]}",
            Location(document=document.path, cell=cell.number if document.kind == "notebook" else None),
            Advice(
                f"Run the {whole} from top to bottom before you submit",
                "All code after an error uses old or missing values.",
                f"{again}, and read the first error message.",
                "",
            ),
        )


def _stops(document: Document, cell: Cell) -> str:
    if document.kind != "notebook":
        return "It ends with an error"
    return f"Cell {cell.number}{'' if cell.added else ' of the starter'} ends with an error"


def _not_run(facts: Facts) -> Iterator[Remark]:
    cells = facts.not_run
    if cells:
        document, cell = cells[0]
        numbers = ", ".join(str(c.number) for _, c in cells[:6])
        yield Remark(
            "major" if len(cells) > 2 else "minor",
            "Code that was not run",
            f"Cells without a result: {numbers}. Without outputs, there is no result to grade.",
            Location(document=document.path, cell=cell.number),
            Advice(
                "Run every cell and save the notebook with its outputs",
                "The outputs show your results.",
                "Use 'Restart and run all', then save.",
                "",
            ),
        )


def _run_here(facts: Facts) -> Iterator[Remark]:
    if facts.run_here and not facts.not_run and not facts.errors:
        document, cell = facts.run_here[0]
        yield Remark(
            "note",
            "Submitted without outputs",
            "It ran on the server. Save the notebook with its outputs before you submit it.",
            Location(document=document.path, cell=cell.number),
        )


_PARSE_ADVICE = Advice(
    "Check the syntax before you submit",
    "Code with a syntax error cannot run.",
    "Run it once: the message names the line, and the error is in that line or just above it.",
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
                python_syntax.parse(source)
            except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
                at = getattr(error, "lineno", None)
                line = cell.first_line + at - 1 if isinstance(at, int) and 0 < at <= len(cell.lines) else None
                detail = f"Python reports: {getattr(error, 'msg', 'too deeply nested')}."
                place = Location(document=document.path, cell=cell_number, line=line)
                yield Remark("major", "Syntax error", detail, place, _PARSE_ADVICE)
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
            detail = f"Line {line} has a syntax error."
            yield Remark("major", "Syntax error", detail, piece.at(line), _PARSE_ADVICE)


_NO_VALUE = re.compile(r"^(?:\[1\] )?(?:NA|NaN|nan)$")


def _no_value(facts: Facts) -> Iterator[Remark]:
    for document, cell in facts.cells:
        if not cell.added or not any(_NO_VALUE.match(o.text.strip()) for o in cell.outputs):
            continue
        yield Remark(
            "major",
            "The result is NA",
            "The output is only NA: the calculation used a missing value.",
            Location(document=document.path, cell=cell.number if document.kind == "notebook" else None),
            Advice(
                "Handle missing values before you calculate",
                "One missing value makes the whole result NA.",
                "Find the column with missing values, decide what to do with those rows, then run it again.",
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
                "Repeated lines",
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
                f"{name}() does not handle missing values",
                "One NA among the values makes the whole result NA.",
                line.location,
                Advice(
                    "Decide what happens to missing values",
                    f"{name}() returns NA as soon as one value is missing.",
                    "Remove them first, or use na.rm = TRUE and explain why in a comment.",
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
            detail = f"{name} is assigned here and never used."
            yield Remark("note", "Unused variable", detail, line.location)
            return
