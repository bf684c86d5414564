"""How much may stand beside an expected output: enough to look around, too little to list every answer."""

from __future__ import annotations

from collections.abc import Sequence

from grading.checks.comparison.numbers import Tolerance
from grading.checks.comparison.outputs import Line, same_line
from grading.domain.messages import Message, define_message

TIMES = 3
MOST = {"lines": 100, "numbers": 200}
"""Of one cell or place, beside TIMES as many as are expected. The longest output seen in a real solution has
78 lines, and 276 numbers."""
LONG = 200
"""Words of a line; a longer one is no order of an answer that somebody lists."""
ALIKE = 60
"""Other lines of the form of an expected one, beside TIMES as many as are expected: pandas' longest table."""

TOO_MUCH = {
    "lines": define_message(
        "output.many_lines",
        "the output has %(shown)s lines, where no more than %(most)s may stand beside the answer",
    ),
    "numbers": define_message(
        "output.many_numbers",
        "the output has %(shown)s numbers, where no more than %(most)s may stand beside the answer",
    ),
}
ORDERS = define_message("output.orders", "the output has the words of one answer in %(orders)s orders")
ALIKE_LINES = define_message(
    "output.alike",
    "the output has %(alike)s more lines like one that was asked for, with other numbers",
)


def too_much(kind: str, shown: int, expected: int, cells: int = 1) -> Message | None:
    """Why so much output is no answer, as a clause; nothing within bounds. `kind` is a key of MOST."""
    most = TIMES * expected + MOST[kind] * max(cells, 1)
    if shown <= most:
        return None
    return TOO_MUCH[kind](shown=shown, most=most)


def enumerated(wanted: Sequence[Line], have: Sequence[Line], tolerance: Tolerance) -> Message | None:
    """Why lines only list what an answer might be, as a clause; nothing where they do not.

    Such a list has the words of an expected line in many orders, or its form with many numbers.
    """
    others = {
        (line.words, line.numbers): line
        for line in have
        if not any(same_line(one, line, tolerance) for one in wanted)
    }.values()
    for line in wanted:
        order = _order(line)
        mixed = sorted(order)
        own = {_order(one) for one in wanted if sorted(_order(one)) == mixed}
        orders = {
            _order(one) for one in others if len(one.words) < LONG and sorted(_order(one)) == mixed
        } - own
        if len(order) > 1 and len(orders) > len(own):
            return ORDERS(orders=len(orders) + len(own))
        alike = sum(one.words == line.words for one in others)
        if line.numbers and alike > TIMES * sum(one.words == line.words for one in wanted) + ALIKE:
            return ALIKE_LINES(alike=alike)
    return None


def _order(line: Line) -> tuple[str, ...]:
    """The words and numbers of a line as they follow each other, without signs."""
    numbers = iter(line.numbers)
    return tuple(word or next(numbers) for word in line.words if not word or word.isalnum())
