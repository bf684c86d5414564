"""Compares what cells print: lines in a normal form, numbers within tolerances, tables by their columns.

A line is the same when its words and signs are, in any case and with any blanks between them, and its numbers
are close, or the same when rounded to the digits that both show.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from grading.checks.comparison.numbers import Tolerance
from grading.checks.comparison.tables import normal_name
from grading.domain.document import Output

ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\n\x1b]{0,2000}\x07")
NUMBER = re.compile(
    r"(?<![\w.])[-+]?(?:\d{1,3}(?:,\d{3})+(?![\d,])|\d{1,30})(?:\.\d{1,30})?(?:[eE][-+]?\d{1,3})?(?![A-Za-z_])"
)
_TOKEN = re.compile(rf"(?P<number>{NUMBER.pattern})|\w+|[^\w\s]")
_INDEX = re.compile(r"^\s*\[(\d{1,9})(?:,\d*)?\](?=\s|$)")
_NOISE = re.compile(
    r"^[\s\-=_+|:─━═*]*$"  # rules and empty lines
    r"|^#+ (?:A tibble|A data\.frame|Groups)\b.*$"
    r"|^A (?:tibble|data\.frame|matrix):? \d.*$"
    r"|^[\s\d]*(?:<\w{2,8}>\s*)+$"  # the types below a tibble's or data frame's header
    r"|^\[?\d+ rows x \d+ columns\]?$",
    re.IGNORECASE,
)
_MESSAGE = re.compile(
    r"^(?:Attaching package: |Loading required package: |── (?:Attaching|Conflicts|Column specification)\b"
    r"|[✔✖] \w+(?:::| +\d)|ℹ Use the conflicted package|Rows: \d+ Columns: \d+$|Delimiter: \""
    r"|(?:chr|dbl|int|lgl|fct|date|dttm|time) +\(\d+\): |ℹ (?:Use `spec|Specify the column types))"
)
"""What R says on loading a package or reading a file: no answer, and other packages say other things."""
_MASKED = re.compile(r"^The following objects? (?:is|are) masked (?:from|_by_) .*:$")
_LISTED = re.compile(r"^(?: {4}\S.*)?$")
"""The names that are masked, below that line."""
MAX_LINES = 400
"""Of one output; what follows is not compared."""
MAX_LINE = 2_000
FEWEST_DIGITS = 2
"""A number that is shown with fewer digits than expected must show at least these."""


@dataclass(frozen=True)
class Line:
    """A printed line: its words and signs with gaps for the numbers, and the numbers as they stand."""

    text: str
    words: tuple[str, ...]
    numbers: tuple[str, ...]


@dataclass(frozen=True)
class Compared:
    """How much of an expected output was found."""

    found: int
    expected: int
    missing: str = ""
    """The first line that was not found, as it was expected."""


def compare_outputs(expected: Sequence[Output], got: Sequence[Output], tolerance: Tolerance) -> Compared:
    """How many of the expected lines, rows of tables and pictures are in other outputs, in their order."""
    wanted, have = lines_of(text_of(expected)), lines_of(text_of(got))
    matched = _in_order(wanted, have, tolerance)
    if len(matched) < len(wanted):
        matched |= _in_tables(wanted, have, tolerance)
    pictures = sum(o.image for o in expected)
    shown = min(pictures, sum(o.image for o in got))
    missing = next((line.text for n, line in enumerate(wanted) if n not in matched), "")
    if not missing and shown < pictures:
        missing = "a picture"
    return Compared(len(matched) + shown, len(wanted) + pictures, missing)


def text_of(outputs: Sequence[Output]) -> str:
    """The text of outputs, without errors and without what only names a picture."""
    return "\n".join(o.text.rstrip("\n") for o in outputs if o.kind != "error" and not o.image)


def lines_of(text: str) -> tuple[Line, ...]:
    """The lines that say something, in their normal form; R's wrapped vectors become one line."""
    found: list[Line] = []
    plain = ANSI.sub("", text[: 4 * MAX_LINES * MAX_LINE]).replace("\u2212", "-").replace("\r\n", "\n")
    masked = False
    for raw in plain.split("\n")[: 4 * MAX_LINES]:
        raw = raw.rpartition("\r")[2][:MAX_LINE]
        masked = bool(_MASKED.match(raw)) or (masked and _LISTED.match(raw) is not None)
        if masked or _NOISE.match(raw) or _MESSAGE.match(raw):
            continue
        index = _INDEX.match(raw)
        line = _line(raw[index.end() :] if index else raw)
        if index and int(index[1]) > 1 and found and "\n" not in found[-1].text:
            before = found[-1]
            found[-1] = Line(
                f"{before.text} {line.text}", before.words + line.words, before.numbers + line.numbers
            )
        else:
            found.append(line)
        if len(found) >= MAX_LINES:
            break
    return tuple(found)


def same_line(expected: Line, got: Line, tolerance: Tolerance) -> bool:
    """Whether two lines say the same."""
    return expected.words == got.words and all(
        same_number(a, b, tolerance) for a, b in zip(expected.numbers, got.numbers, strict=True)
    )


@lru_cache(maxsize=8192)
def same_number(expected: str, got: str, tolerance: Tolerance) -> bool:
    """Whether two printed numbers are close, or the same when rounded to the digits that both show."""
    if expected == got:
        return True
    a, b = _value(expected), _value(got)
    if abs(a - b) <= max(tolerance.absolute, tolerance.rel * abs(a)):
        return True
    places, mine = _places(expected), _places(got)
    if places == mine or (mine < places and _digits(got) < FEWEST_DIGITS):
        return False
    return abs(a - b) <= 0.5 * 10.0 ** -min(places, mine) * (1 + 1e-9)


def _line(raw: str) -> Line:
    words: list[str] = []
    numbers: list[str] = []
    for hit in _TOKEN.finditer(raw.casefold()):
        if hit["number"] is not None:
            numbers.append(hit["number"].replace(",", ""))
            words.append("")
        elif hit[0] not in "\"'`“”‘’":
            words.append(hit[0])
    return Line(raw.strip(), tuple(words), tuple(numbers))


def _in_order(wanted: Sequence[Line], have: Sequence[Line], tolerance: Tolerance) -> set[int]:
    """Which of the wanted lines are in a longest sequence that both have in common."""
    rows = len(have) + 1
    best = [[0] * rows for _ in range(len(wanted) + 1)]
    equal = [[same_line(a, b, tolerance) for b in have] for a in wanted]
    for n in range(len(wanted) - 1, -1, -1):
        for m in range(len(have) - 1, -1, -1):
            skip = max(best[n + 1][m], best[n][m + 1])
            best[n][m] = best[n + 1][m + 1] + 1 if equal[n][m] else skip
    found: set[int] = set()
    n = m = 0
    while n < len(wanted) and m < len(have):
        if equal[n][m]:
            found.add(n)
            n, m = n + 1, m + 1
        elif best[n + 1][m] >= best[n][m + 1]:
            n += 1
        else:
            m += 1
    return found


@dataclass(frozen=True)
class _Table:
    first: int
    """The number of the header's line."""
    rows: tuple[tuple[tuple[str, str], ...], ...]
    """The cells of each row with the name of their column, sorted by it."""


def _in_tables(wanted: Sequence[Line], have: Sequence[Line], tolerance: Tolerance) -> set[int]:
    """Numbers of the wanted lines that are rows of a table which the other side has with the same columns."""
    mine = _tables(have)
    found: set[int] = set()
    for table in _tables(wanted):
        names = [name for name, _ in table.rows[0]]
        fitting = (t for t in mine if [name for name, _ in t.rows[0]] == names)
        best: set[int] = set()
        for other in fitting:
            pairs = zip(table.rows, other.rows, strict=False)
            rows = {n for n, (a, b) in enumerate(pairs, start=1) if _same_row(a, b, tolerance)}
            best = max(best, rows, key=len)
        if best:
            found |= {table.first} | {table.first + n for n in best}
    return found


def _same_row(
    expected: Sequence[tuple[str, str]], got: Sequence[tuple[str, str]], tolerance: Tolerance
) -> bool:
    return all(same_line(_line(a), _line(b), tolerance) for (_, a), (_, b) in zip(expected, got, strict=True))


def _tables(lines: Sequence[Line]) -> list[_Table]:
    """Headers of two words or more, with rows that have as many cells, or one more before them."""
    found: list[_Table] = []
    n = 0
    while n < len(lines):
        names = [normal_name(word) or word for word in lines[n].text.split()]
        if len(names) < 2 or len(set(names)) < len(names) or lines[n].numbers:
            n += 1
            continue
        rows = []
        for line in lines[n + 1 :]:
            cells = line.text.split()
            if len(cells) == len(names) + 1:
                cells = cells[1:]  # pandas' index, R's row names
            if len(cells) != len(names):
                break
            rows.append(tuple(sorted(zip(names, cells, strict=True))))
        if rows:
            found.append(_Table(n, tuple(rows)))
        n += len(rows) + 1
    return found


def _value(text: str) -> float:
    return float(text.replace(",", ""))


def _places(text: str) -> int:
    """Digits after the point; negative where an exponent moves it."""
    number, _, exponent = text.lower().partition("e")
    return len(number.partition(".")[2]) - int(exponent or 0)


def _digits(text: str) -> int:
    return len(re.sub(r"\D", "", text.lower().partition("e")[0]).lstrip("0"))
