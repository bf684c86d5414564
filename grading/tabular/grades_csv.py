"""Grades as CSV for spreadsheets, written and parsed; pure.

No written cell can be read as a formula: cells that begin like one get a leading apostrophe.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from grading.domain.base_value import Value
from grading.domain.errors import DocumentError
from grading.domain.messages import Message, define_message
from grading.tabular.roster_csv import COLUMNS, decode_text

TABLE_EMPTY = define_message(
    "grades_csv.table_empty", "The table is empty. Its first line names the columns, one of them 'id'."
)
TOO_MANY_LINES = define_message(
    "grades_csv.too_many_lines", "The table has more than %(most)s lines; split it and upload the parts."
)
NO_STUDENT_COLUMN = define_message(
    "grades_csv.no_student_column", "No column identifies the students. Name it 'id'."
)
NO_POINTS_COLUMN = define_message(
    "grades_csv.no_points_column", "No column has points. Use one of these names: %(wanted)s."
)
TABLE_UNREADABLE = define_message(
    "grades_csv.table_unreadable", "The table cannot be read: %(why)s. Save it as CSV again."
)
NO_STUDENT = define_message("grades_csv.no_student", "the student's ID is missing")
STUDENT_TWICE = define_message("grades_csv.student_twice", "'%(name)s' is already in line %(line)s")
NOT_A_NUMBER = define_message("grades_csv.not_a_number", "'%(text)s' is not a number of points")
COLUMN_TWICE = define_message(
    "grades_csv.column_twice", "Two columns are called '%(name)s'; delete one of them."
)

SEPARATORS: Mapping[str, str] = {"comma": ",", "semicolon": ";", "tab": "\t"}
FORMULA = tuple("=+-@|%\t\r\n\uff1d\uff0b\uff0d\uff20")
"""Characters that spreadsheets, also localised ones, read as the beginning of a formula or a command."""
SHORT_DECIMAL = re.compile(r"[+-]?[0-9]+,[0-9]{1,2}")
MAX_ROWS = 5000
ADJUSTMENT = "adjustment"
GUARANTEE = "guarantee"
"""Column with what a grade was released unread by."""
CALCULATED = frozenset(
    "name submission submitted_at state points max credit final released reviewed held deductions guarantee"
    " total of dropped".split()
)
"""Columns for people that are not parsed."""
WORKED_OUT = ("points", "final")
"""Calculated columns that somebody may edit by mistake."""


class TableUnreadable(DocumentError):
    """The table cannot be read. Its first line must name the columns, one of them the student's ID."""

    code = "table_unreadable"
    default_message = define_message(
        "error.table_unreadable",
        "The table cannot be read. Its first line must name the columns, one of them the student's ID.",
    )


class RequestedPoints(Value):
    """The points that a row requests for one student."""

    line: int
    student: str
    target: str
    """Id of a criterion, or ADJUSTMENT; in `sums` one of WORKED_OUT."""
    points: float


class GradeTable(Value):
    """A parsed file."""

    wishes: tuple[RequestedPoints, ...]
    problems: tuple[tuple[int, Message], ...] = ()
    """Rows that are left out, and why."""
    ignored: tuple[str, ...] = ()
    """Columns that are not parsed."""
    sums: tuple[RequestedPoints, ...] = ()
    """Edited values of calculated columns, which are not applied."""


def safe_cell(value: Any) -> str:
    """A value as a cell that no spreadsheet reads as a formula."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
    text = "".join(c if c.isprintable() else " " for c in str(value))
    return f"'{text}" if text.lstrip().startswith(FORMULA) or str(value).startswith(FORMULA) else text


def csv_lines(
    header: Sequence[str], rows: Iterable[Sequence[Any]], separator: str = ",", *, bom: bool = False
) -> Iterator[bytes]:
    """The lines of the file, in UTF-8."""
    if bom:
        yield b"\xef\xbb\xbf"
    buffer = io.StringIO()
    writer = csv.writer(buffer, delimiter=separator, lineterminator="\r\n")
    writer.writerow([safe_cell(one) for one in header])
    yield _taken(buffer)
    for values in rows:
        writer.writerow([safe_cell(one) for one in values])
        yield _taken(buffer)


def _taken(buffer: io.StringIO) -> bytes:
    text = buffer.getvalue()
    buffer.seek(0)
    buffer.truncate()
    return text.encode("utf-8")


def column_title(criterion: str, title: str) -> str:
    """The column's title of a criterion."""
    return f"{title} [{criterion}]"


def parse_grades(data: bytes, criteria: Mapping[str, str]) -> GradeTable:
    """Parse a table; `criteria` are titles by id. Raises TableUnreadable.

    Empty cells request nothing. A decimal comma is accepted where commas do not separate columns, and in
    quotes with one or two digits after it, which is no thousands separator.
    """
    text = decode_text(data).removeprefix("\ufeff")
    first = text.partition("\n")[0]
    separator = max(",;\t", key=first.count)
    try:
        found = list(csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True))
    except csv.Error as error:
        raise TableUnreadable(TABLE_UNREADABLE(why=error)) from None
    if not found or not any(one.strip() for one in found[0]):
        raise TableUnreadable(TABLE_EMPTY)
    if len(found) - 1 > MAX_ROWS:
        raise TableUnreadable(TOO_MANY_LINES(most=MAX_ROWS))
    places, sums, ignored = _places([one.strip() for one in found[0]], criteria)
    return _read(found, places, sums, ignored, comma=separator != ",")


def _places(
    names: Sequence[str], criteria: Mapping[str, str]
) -> tuple[dict[str, int], dict[str, int], tuple[str, ...]]:
    """Target -> its column, the student's id under the empty name; columns of WORKED_OUT; ignored names."""
    known = {column_title(one, title).casefold(): one for one, title in criteria.items()}
    known |= {one.casefold(): one for one in criteria}
    for one, title in criteria.items():
        if [*criteria.values()].count(title) == 1:
            known.setdefault(title.casefold(), one)
    places: dict[str, int] = {}
    sums: dict[str, int] = {}
    ignored = []
    for place, name in enumerate(names):
        plain = "".join(c for c in name.casefold() if c.isalnum())
        target = known.get(name.removeprefix("'").casefold())
        if target is None and name.casefold() == ADJUSTMENT:
            target = ADJUSTMENT
        if target is None and plain in COLUMNS["id"]:
            target = ""
        if target is None and name.casefold() in WORKED_OUT:
            sums.setdefault(name.casefold(), place)
        elif target is None:
            ignored += [name] if name and name.casefold() not in CALCULATED else []
        elif target in places:
            raise TableUnreadable(COLUMN_TWICE(name=name))
        else:
            places[target] = place
    if "" not in places:
        raise TableUnreadable(NO_STUDENT_COLUMN)
    if len(places) == 1:
        wanted = ", ".join([ADJUSTMENT, *criteria][:6])
        raise TableUnreadable(NO_POINTS_COLUMN(wanted=wanted))
    return places, sums, tuple(ignored)


def _read(
    found: Sequence[Sequence[str]],
    places: Mapping[str, int],
    columns: Mapping[str, int],
    ignored: tuple[str, ...],
    *,
    comma: bool,
) -> GradeTable:
    wishes: list[RequestedPoints] = []
    sums: list[RequestedPoints] = []
    problems: list[tuple[int, Message]] = []
    seen: dict[str, int] = {}
    for number, row in enumerate(found[1:], start=2):
        values = {target: row[place].strip() if place < len(row) else "" for target, place in places.items()}
        student = _unmarked(values.pop(""))
        if not student:
            if any(values.values()):
                problems.append((number, NO_STUDENT()))
            continue
        if student in seen:
            problems.append((number, STUDENT_TWICE(name=student, line=seen[student])))
            continue
        seen[student] = number
        for target, text in values.items():
            points = _number(text, comma=comma)
            if text and points is None:
                problems.append((number, NOT_A_NUMBER(text=text[:40])))
            elif points is not None:
                wishes.append(RequestedPoints(line=number, student=student, target=target, points=points))
        for target, place in columns.items():
            points = _number(row[place].strip(), comma=comma) if place < len(row) else None
            sums += (
                [RequestedPoints(line=number, student=student, target=target, points=points)]
                if points is not None
                else []
            )
    return GradeTable(wishes=tuple(wishes), problems=tuple(problems), ignored=ignored, sums=tuple(sums))


def _unmarked(text: str) -> str:
    """The cell without the apostrophe that `safe_cell` adds."""
    return text[1:] if text.startswith("'") and text[1:].lstrip().startswith(FORMULA) else text


def _number(text: str, *, comma: bool) -> float | None:
    plain = _unmarked(text).replace("\u2212", "-")
    try:
        value = float(plain.replace(",", ".") if comma or SHORT_DECIMAL.fullmatch(plain) else plain)
    except ValueError:
        return None
    return round(value, 2) if math.isfinite(value) and abs(value) < 1e6 and "_" not in plain else None
