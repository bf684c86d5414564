"""Marks that people gave before, as CSV with a mapping to the criteria of a rubric; pure.

A table is wide, with a column for each criterion, or long, with one mark in each row. Cells hold points or
levels, or words such as letters that the mapping has a level for. Empty cells are missing marks.
"""

from __future__ import annotations

import csv
import io
import math
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field, ValidationError

from grading.domain.base_value import Value
from grading.domain.errors import DocumentError
from grading.domain.messages import Message, define_message
from grading.domain.rubric import Criterion, Rubric
from grading.tabular.roster_csv import COLUMNS, decode_text

TABLE_EMPTY = define_message("marks_csv.table_empty", "The table is empty. Its first line names the columns.")
TABLE_UNREADABLE = define_message(
    "marks_csv.table_unreadable", "The table cannot be read: %(why)s. Save it as CSV again."
)
TOO_MANY_LINES = define_message(
    "marks_csv.too_many_lines", "The table has more than %(most)s lines; split it and import the parts."
)
COLUMN_TWICE = define_message(
    "marks_csv.column_twice", "Two columns are called '%(name)s'; rename or delete one of them."
)
NO_COLUMN = define_message(
    "marks_csv.no_column", "The mapping names the column '%(name)s', which the table does not have."
)
NO_WORK_COLUMN = define_message(
    "marks_csv.no_work_column",
    "No column says whose work was marked. Name it 'id', or name it in the mapping: work = \"…\".",
)
NO_CRITERION_COLUMN = define_message(
    "marks_csv.no_criterion_column",
    "No column is a criterion of the rubric. Name columns as criteria (%(known)s), or map them in the "
    "mapping under [criteria].",
)
NO_SUCH_CRITERION = define_message(
    "marks_csv.no_such_criterion",
    "The mapping leads to the criterion '%(criterion)s', which the rubric does not have. It has: %(known)s.",
)
BAD_MAPPING = define_message("marks_csv.bad_mapping", "The mapping cannot be read: %(why)s.")
NO_WORK = define_message("marks_csv.no_work", "nobody is named whose work was marked")
UNKNOWN_MARK = define_message(
    "marks_csv.unknown_mark",
    "'%(text)s' in '%(column)s' is not a number, and the mapping has no level for it",
)
OUT_OF_RANGE = define_message(
    "marks_csv.out_of_range", "%(text)s in '%(column)s' is not between 0 and %(most)s"
)
TWICE = define_message(
    "marks_csv.twice", "'%(marker)s' marked '%(criterion)s' of the same work already in line %(line)s"
)
TOO_LONG = define_message("marks_csv.too_long", "'%(text)s…' is longer than %(most)s characters")

MAX_ROWS = 20_000
MAX_LENGTH = 80
MISSING = frozenset(("", "-", "–", "—", "na", "n/a", "nan", "none", "null", "."))
UNNAMED = "?"
"""The marker where nobody is named."""
SHARE = re.compile(r"\s*(\d{1,3}(?:[.,]\d+)?)\s*%\s*")
MARKERS = ("marker", "markedby", "rater", "grader", "gradedby", "reviewer", "ta", "korrektor", "bewerter")
WORKS = ("work", "submission", "submissionid", "student")
CRITERIA = ("criterion", "question", "item", "kriterium", "frage")
MARKS = ("mark", "level", "points", "score", "grade", "stufe", "punkte")


class MarksUnreadable(DocumentError):
    """The table of marks cannot be read."""

    code = "marks_unreadable"
    default_message = define_message("error.marks_unreadable", "The table of marks cannot be read.")


class MappedColumn(Value):
    """The criterion that a column, or a name in the column of criteria, stands for."""

    criterion: str
    marker: str = ""
    """Who gave the marks of this column."""
    out_of: float | None = Field(default=None, gt=0)
    """Its highest points; without it those of the rubric."""


class MarkMapping(Value):
    """What stands for what in a table."""

    work: str = ""
    """Column that says whose work was marked: a student's id, or a submission's."""
    marker: str = ""
    """Column of who marked."""
    criterion: str = ""
    """Column of the criterion, in a long table."""
    mark: str = ""
    """Column of the mark, in a long table."""
    numbers: Literal["points", "levels"] = "points"
    """What numbers are."""
    criteria: Mapping[str, str | MappedColumn] = Field(default_factory=dict)
    levels: Mapping[str, float | str] = Field(default_factory=dict)
    """Words in cells -> a level, or a share of the highest one such as "75 %"; "" is a missing mark."""


@dataclass(frozen=True)
class ParsedMark:
    """One mark of one person."""

    line: int
    work: str
    marker: str
    criterion: str
    level: float


@dataclass(frozen=True)
class MarkTable:
    """A parsed file."""

    marks: tuple[ParsedMark, ...]
    missing: int
    """Empty cells."""
    ignored: tuple[str, ...]
    """Columns, or names of criteria in a long table, that stand for nothing."""
    problems: tuple[tuple[int, Message], ...]
    """Lines that cannot be read, and why."""


def read_mapping(data: bytes) -> MarkMapping:
    """A mapping in TOML. Raises MarksUnreadable."""
    try:
        return MarkMapping.model_validate(tomllib.loads(data.decode("utf-8-sig")))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise MarksUnreadable(BAD_MAPPING(why=error)) from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise MarksUnreadable(BAD_MAPPING(why=f"{where}: {first['msg']}")) from None


def parse_marks(data: bytes, rubric: Rubric, mapping: MarkMapping) -> MarkTable:
    """The marks of a table. Raises MarksUnreadable where it, or the mapping, makes no sense as a whole."""
    return _Reader(rubric, mapping, _rows(data)).read()


def _rows(data: bytes) -> list[tuple[int, list[str]]]:
    """Lines with their number, the header first."""
    text = decode_text(data).removeprefix("\ufeff")
    first = next((line for line in text.splitlines() if line.strip()), "")
    bare = re.sub(r'"[^"]*"', "", first)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=bare.count), strict=True)
    rows: list[tuple[int, list[str]]] = []
    before = 0
    try:
        for fields in reader:
            if any(field.strip() for field in fields):
                rows.append((before + 1, [" ".join(field.split()) for field in fields]))
            before = reader.line_num
            if len(rows) > MAX_ROWS + 1:
                raise MarksUnreadable(TOO_MANY_LINES(most=MAX_ROWS))
    except csv.Error as error:
        raise MarksUnreadable(TABLE_UNREADABLE(why=f"line {before + 1}: {error}")) from None
    if not rows:
        raise MarksUnreadable(TABLE_EMPTY)
    return rows


_Cells = Callable[[Sequence[str]], Iterator[tuple[str, MappedColumn, str]]]
"""The cells of a row that hold marks: name of the column or criterion, what it stands for, text."""


def _plain(name: str) -> str:
    return "".join(c for c in name.casefold() if c.isalnum())


class _Reader:
    """Reads the rows of one table."""

    def __init__(self, rubric: Rubric, mapping: MarkMapping, rows: Sequence[tuple[int, list[str]]]) -> None:
        self.mapping = mapping
        self.rubric = {one.id: one for one in rubric.criteria}
        self.names = rows[0][1]
        self.rows = rows[1:]
        for name in self.names:
            if name and self.names.count(name) > 1:
                raise MarksUnreadable(COLUMN_TWICE(name=name))
        self.words = {word.casefold().strip(): level for word, level in mapping.levels.items()}
        self.known = self._known()
        self.work = self._column(mapping.work, (*COLUMNS["id"], *WORKS))
        self.marker = self._column(mapping.marker, MARKERS)
        self.criterion = self._column(mapping.criterion, CRITERIA)
        self.mark = self._column(mapping.mark, MARKS)
        self.marks: list[ParsedMark] = []
        self.missing = 0
        self.ignored: dict[str, None] = {}
        self.problems: list[tuple[int, Message]] = []
        self.seen: dict[tuple[str, str, str], int] = {}

    def _known(self) -> dict[str, MappedColumn]:
        """What names stand for: ids and titles of criteria, then what the mapping says."""
        known = {one.casefold(): MappedColumn(criterion=one) for one in self.rubric}
        for one in self.rubric.values():
            known.setdefault(one.title.casefold(), MappedColumn(criterion=one.id))
        for name, to in self.mapping.criteria.items():
            rule = MappedColumn(criterion=to) if isinstance(to, str) else to
            if rule.criterion not in self.rubric:
                raise MarksUnreadable(
                    NO_SUCH_CRITERION(criterion=rule.criterion, known=", ".join(self.rubric))
                )
            known[name.casefold()] = rule
        return known

    def _column(self, name: str, usual: Sequence[str]) -> int | None:
        """The place of the column that the mapping names, or of the first with a usual name."""
        if name:
            if name not in self.names:
                raise MarksUnreadable(NO_COLUMN(name=name))
            return self.names.index(name)
        found = [place for place, one in enumerate(self.names) if _plain(one) in usual]
        return next((place for place in found if self.names[place].casefold() not in self.known), None)

    def read(self) -> MarkTable:
        """The table."""
        if self.work is None:
            raise MarksUnreadable(NO_WORK_COLUMN)
        cells = self._long if self.criterion is not None and self.mark is not None else self._wide()
        for line, row in self.rows:
            work = self._field(row, self.work)
            if not work:
                self.problems.append((line, NO_WORK()))
                continue
            for name, rule, text in cells(row):
                self._take(line, work, row, name, rule, text)
        ignored = tuple(self.ignored)
        return MarkTable(tuple(self.marks), self.missing, ignored, tuple(self.problems))

    def _field(self, row: Sequence[str], place: int | None) -> str:
        return row[place] if place is not None and place < len(row) else ""

    def _long(self, row: Sequence[str]) -> Iterator[tuple[str, MappedColumn, str]]:
        name = self._field(row, self.criterion)
        rule = self.known.get(name.casefold())
        if rule is None:
            self.ignored.setdefault(name)
        else:
            yield name, rule, self._field(row, self.mark)

    def _wide(self) -> _Cells:
        columns = {
            place: rule
            for place, name in enumerate(self.names)
            if place not in (self.work, self.marker) and (rule := self.known.get(name.casefold())) is not None
        }
        if not columns:
            raise MarksUnreadable(NO_CRITERION_COLUMN(known=", ".join(self.rubric)))
        others = [n for p, n in enumerate(self.names) if p not in (*columns, self.work, self.marker) and n]
        self.ignored = dict.fromkeys(others)

        def cells(row: Sequence[str]) -> Iterator[tuple[str, MappedColumn, str]]:
            for place, rule in columns.items():
                yield self.names[place], rule, self._field(row, place)

        return cells

    def _take(
        self, line: int, work: str, row: Sequence[str], name: str, rule: MappedColumn, text: str
    ) -> None:
        marker = rule.marker or self._field(row, self.marker) or UNNAMED
        found = self._level(text, name, rule)
        if found is None:
            self.missing += 1
            return
        if isinstance(found, Message):
            self.problems.append((line, found))
            return
        long = next((one for one in (work, marker) if len(one) > MAX_LENGTH), None)
        key = (work, marker, rule.criterion)
        if long is not None:
            self.problems.append((line, TOO_LONG(text=long[:20], most=MAX_LENGTH)))
        elif key in self.seen:
            said = TWICE(marker=marker, criterion=rule.criterion, line=self.seen[key])
            self.problems.append((line, said))
        else:
            self.seen[key] = line
            self.marks.append(ParsedMark(line, work, marker, rule.criterion, found))

    def _level(self, text: str, column: str, rule: MappedColumn) -> float | Message | None:
        """The level of a cell; nothing for a missing mark."""
        criterion = self.rubric[rule.criterion]
        shown = text[:40]
        if text.casefold() in self.words:
            word = self.words[text.casefold()]
            if word == "":
                return None
            return self._in_levels(f"{word}", shown, column, criterion)
        if text.casefold() in MISSING:
            return None
        if self.mapping.numbers == "levels" or SHARE.fullmatch(text):
            return self._in_levels(text, shown, column, criterion)
        most = rule.out_of or criterion.points
        value = _number(text)
        if value is None:
            return UNKNOWN_MARK(text=shown, column=column)
        if not 0 <= value <= most:
            return OUT_OF_RANGE(text=shown, column=column, most=f"{most:g}")
        return round(value / most * criterion.highest, 2)

    def _in_levels(self, said: str, shown: str, column: str, criterion: Criterion) -> float | Message:
        share = SHARE.fullmatch(said)
        value = _number(share[1]) if share else _number(said)
        if value is None:
            return UNKNOWN_MARK(text=shown, column=column)
        level = value / 100 * criterion.highest if share else value
        if not 0 <= level <= criterion.highest:
            return OUT_OF_RANGE(text=shown, column=column, most=criterion.highest)
        return round(level, 2)


def _number(text: str) -> float | None:
    """A number with a decimal point or comma."""
    plain = text.strip().lstrip("'").replace("\u2212", "-").replace(",", ".")
    if not re.fullmatch(r"[+-]?\d{1,6}(\.\d{1,6})?", plain):
        return None
    value = float(plain)
    return value if math.isfinite(value) else None
