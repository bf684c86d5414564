"""Compares tables by columns and rows."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

from grading.checks.comparison.numbers import Tolerance, close
from grading.domain.messages import Message, define_message
from grading.execution.values import Shape

NO_COLUMN = define_message("table.no_column", "has no column %(column)s")
MORE_COLUMNS = define_message("table.more_columns", "has a column %(column)s that is not expected")
ROWS = define_message("table.rows", "has %(got)s rows, not %(expected)s")
LENGTHS = define_message("table.lengths", "has columns of different lengths")
IN_COLUMN = define_message("table.in_column", "has %(got)s in column %(column)s, not %(expected)s")
IN_ROW = define_message("table.in_row", "has %(got)s in column %(column)s, row %(row)s, not %(expected)s")
INDEX = "(index"
"""What the columns begin with that hold a data frame's row names."""
Cell = float | bool | str | None
Column = Sequence[Cell]


def difference_of_tables(
    expected: Shape, got: Shape, tolerance: Tolerance, ignore_row_order: bool = False
) -> Message | None:
    """The first difference as the rest of a sentence ("has …"), or nothing when they are the same.

    Columns may come in any order and are known by their names without case, blanks and signs.
    """
    wanted, have = _without_indexes(columns_of(expected), columns_of(got))
    missing = [name for name in wanted if name not in have]
    if missing:
        return NO_COLUMN(column=_label(expected, missing[0]))
    extra = [name for name in have if name not in wanted]
    if extra:
        return MORE_COLUMNS(column=_label(got, extra[0]))
    rows, mine = _rows(expected), _rows(got)
    if rows != mine and not (expected.cut and got.cut):
        return ROWS(got=mine, expected=rows)
    if len({len(column) for column in got.columns}) > 1:
        return LENGTHS()
    if ignore_row_order:
        wanted, have = _sorted(wanted), _sorted({name: have[name] for name in wanted})
    for name, column in wanted.items():
        for n, (a, b) in enumerate(zip(column, have[name], strict=False), start=1):
            if not same_cell(a, b, tolerance):
                values = {"got": _said(b), "column": _label(expected, name), "expected": _said(a)}
                return IN_COLUMN(**values) if ignore_row_order else IN_ROW(**values, row=n)
    return None


def same_cell(expected: Cell, got: Cell, tolerance: Tolerance) -> bool:
    """Whether two cells are the same; an empty one is the same as one that is not a number."""
    if _empty(expected) or _empty(got):
        return _empty(expected) and _empty(got)
    if isinstance(expected, str) or isinstance(got, str):
        return expected == got
    return close(_plain(expected), _plain(got), tolerance)


def columns_of(table: Shape) -> dict[str, Column]:
    """The columns by the normal form of their names; by the names themselves where those would collide."""
    normal = [normal_name(name) for name in table.names]
    twice = Counter(normal)
    names = [
        name if name.startswith(INDEX) or not short or twice[short] > 1 else short
        for short, name in zip(normal, table.names, strict=True)
    ]
    return dict(zip(names, table.columns, strict=False))


def _without_indexes(
    wanted: dict[str, Column], have: dict[str, Column]
) -> tuple[dict[str, Column], dict[str, Column]]:
    """The columns without numbers of rows; their names count as the column the other side has instead."""

    def plain(mine: dict[str, Column], other: dict[str, Column]) -> dict[str, Column]:
        absent = [name for name in other if name not in mine and not name.startswith(INDEX)]
        kept = {name: column for name, column in mine.items() if not name.startswith(INDEX)}
        for name, column in mine.items():
            if not name.startswith(INDEX):
                continue
            if absent:
                kept[absent.pop(0)] = column
            elif name in other and any(isinstance(cell, str) for cell in column):
                kept[name] = column
        return kept

    return plain(wanted, have), plain(have, wanted)


def normal_name(name: str) -> str:
    """A column's name without case, blanks and signs."""
    return re.sub(r"[\W_]+", "", name[:500]).casefold()


def _label(table: Shape, key: str) -> str:
    return next((n for n in table.names if key in (n, normal_name(n))), key)[:80]


def _rows(table: Shape) -> int:
    return max((len(column) for column in table.columns), default=0)


def _empty(cell: Cell) -> bool:
    return cell is None or (isinstance(cell, float) and math.isnan(cell))


def _plain(cell: float | bool | None) -> int | complex:
    number = float(cell or 0)
    return int(number) if number.is_integer() and abs(number) < 1e300 else complex(number)


def _said(cell: Cell) -> str:
    if _empty(cell):
        return "nothing"
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < 1e15:
        return str(int(cell))
    return repr(cell)[:80]


def _sorted(columns: dict[str, Column]) -> dict[str, Column]:
    """Rows in an order of their own: by text and whole numbers first, by other numbers last."""
    exact = sorted(columns, key=lambda name: any(_fraction(c) for c in columns[name]))
    length = min((len(c) for c in columns.values()), default=0)
    order = sorted(range(length), key=lambda n: [_rank(columns[name][n]) for name in exact])
    return {name: [column[n] for n in order] for name, column in columns.items()}


def _fraction(cell: Cell) -> bool:
    return isinstance(cell, float) and not cell.is_integer()


def _rank(cell: Cell) -> tuple[int, float, str]:
    if _empty(cell):
        return 2, 0.0, ""
    if isinstance(cell, str):
        return 1, 0.0, cell
    return 0, float(cell or 0), ""
