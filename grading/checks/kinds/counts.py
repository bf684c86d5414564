"""The kind of check that counts calls, operators, loops and definitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Literal

from pydantic import Field

from grading.checks import field_labels
from grading.checks.context import NO_CODE, Context, Finding
from grading.checks.kind import CheckKind
from grading.checks.kinds.code import fits, named
from grading.checks.message_parts import AT_LEAST, CLASSES, FUNCTIONS, METHODS, listed
from grading.checks.scope import Piece, Scope
from grading.checks.student_definitions import KINDS, ROOTS, descendants, last_part, own_definitions
from grading.domain.messages import Message, MessageType, define_message, define_plural

Counted = Literal["functions", "methods", "classes", "subclasses", "loops", "conditions"]
KEYWORDS = {
    "loops": ("for", "while", "do", "repeat"),
    "conditions": ("if", "switch"),
}
"""What counts as one, as parsed code calls it."""
COUNTED = {
    "loops": define_plural("count.loops", "%(count)s loop", "%(count)s loops"),
    "conditions": define_plural("count.conditions", "%(count)s condition", "%(count)s conditions"),
    "functions": FUNCTIONS,
    "methods": METHODS,
    "classes": CLASSES,
    "subclasses": define_plural("count.subclasses", "%(count)s subclass", "%(count)s subclasses"),
}
SUBCLASSES_OF = define_plural(
    "count.subclasses_of", "%(count)s subclass of %(base)s", "%(count)s subclasses of %(base)s"
)
USES_OF = define_plural("count.uses_of", "%(count)s use of %(names)s", "%(count)s uses of %(names)s")
TOO_MANY = define_plural(
    "check.count.too_many",
    "%(found)s; at most %(count)s is allowed",
    "%(found)s; at most %(count)s are allowed",
)
TOO_FEW = define_plural(
    "check.count.too_few",
    "%(found)s; at least %(count)s is asked for",
    "%(found)s; at least %(count)s are asked for",
)
WITH_NAMES = define_message("rubric.count.with_names", "cannot be used together with names")
ONLY_SUBCLASSES = define_message(
    "rubric.count.only_subclasses", "can only be used when subclasses are counted"
)
NO_BOUND = define_message("rubric.count.no_bound", "is missing; set at_least, at_most or both")
LESS_THAN_LEAST = define_message("rubric.count.less_than_least", "is less than at_least")
AT_MOST = define_message("check.at_most", "at most %(number)s")
BETWEEN = define_message("check.between", "at least %(least)s and at most %(most)s")
Found = tuple[Piece, int]
"""A piece and the line in it where one stands."""


class Count(CheckKind):
    """So many calls, operators, loops or definitions stand on the student's lines.

    Share = found / `at_least`, at most 1; with more than `at_most` it is 0. `names` are counted together.
    """

    kind: Literal["count"] = "count"
    names: tuple[str, ...] = ()
    of: Counted | None = None
    base: str | None = None
    """Only subclasses of this class, also of its subclasses."""
    at_least: int | None = Field(default=None, ge=1)
    at_most: int | None = Field(default=None, ge=0)

    title: ClassVar[MessageType] = define_message(
        "check.count.title", "Number of calls, loops or definitions"
    )
    about: ClassVar[MessageType] = define_message(
        "check.count.about",
        "The student's code has at least or at most this many calls, operators, loops or definitions.",
    )
    field_titles: ClassVar[Mapping[str, MessageType]] = {
        "names": field_labels.NAMES,
        "of": field_labels.OF,
        "base": define_message("check.count.base", "Base class"),
        "at_least": field_labels.AT_LEAST,
        "at_most": field_labels.AT_MOST,
    }
    field_hints: ClassVar[Mapping[str, MessageType]] = {
        "base": define_message("check.count.base_hint", "The name of a class."),
    }
    needed_keys: ClassVar[tuple[str, ...]] = ("names", "of")
    at_once: ClassVar[bool] = True

    def evaluate(self, context: Context, scope: Scope) -> Finding:
        """Share of the asked number of calls, operators or definitions; too many earn nothing."""
        if not scope.code:
            return Finding(0.0, NO_CODE())
        found = _found(self, context, scope)
        what = _counted(self, len(found))
        place = found[0][0].at(found[0][1]) if found else scope.code[0].at()
        if self.at_most is not None and len(found) > self.at_most:
            return Finding(0.0, TOO_MANY(found=what, count=self.at_most), place)
        if self.at_least is None or len(found) >= self.at_least:
            return Finding(1.0, what, place)
        message = TOO_FEW(found=what, count=self.at_least)
        return Finding(len(found) / self.at_least, message, place)

    def default_label(self) -> Message:
        """After its bounds: `at least 10 uses of %>%`."""
        if self.at_least is None or self.at_most is None:
            bound = AT_MOST if self.at_least is None else AT_LEAST
            return bound(number=_counted(self, self.at_least or self.at_most or 0))
        return BETWEEN(least=self.at_least, most=_counted(self, self.at_most))

    def problems(self) -> Iterator[tuple[str, Message]]:
        """Keys with which a count cannot be met or missed, and why."""
        least, most = self.at_least, self.at_most
        if self.names and self.of is not None:
            yield "of", WITH_NAMES()
        if self.base is not None and self.of != "subclasses":
            yield "base", ONLY_SUBCLASSES()
        if least is None and most is None:
            yield "at_least", NO_BOUND()
        if least is not None and most is not None and most < least:
            yield "at_most", LESS_THAN_LEAST()


def _counted(check: Count, count: int) -> Message:
    """So many of what is counted."""
    if check.base is not None:
        return SUBCLASSES_OF(count=count, base=check.base)
    if check.of is not None:
        return COUNTED[check.of](count=count)
    return USES_OF(count=count, names=listed(check.names, 4))


def _found(check: Count, context: Context, scope: Scope) -> list[Found]:
    """Where they stand, in the order of the work."""
    if check.of in KEYWORDS:
        found = _calls(KEYWORDS[check.of], scope)
    elif check.of is not None:
        found = _definitions(check, context, scope)
    else:
        found = _calls([name for one in check.names for name in context.accepted(one)], scope)
    return sorted(found, key=lambda hit: (hit[0].cell.number, hit[1]))


def _calls(names: Sequence[str], scope: Scope) -> list[Found]:
    hits: dict[tuple[int, int], Found] = {}  # each call once, also where two of the names fit it
    for number, piece in enumerate(scope.code):
        for name in names:
            for call in named(piece.facts.called, name):
                # a starter's call around the student's lines is not the student's
                if fits(call, name, piece.facts.language) and call.first in piece.added:
                    hits.setdefault((number, id(call)), (piece, call.first))
    return list(hits.values())


def _definitions(check: Count, context: Context, scope: Scope) -> list[Found]:
    mine = own_definitions(scope, KINDS["classes" if check.of == "subclasses" else str(check.of)])
    if check.of != "subclasses":
        return [(piece, one.first) for piece, one in mine]
    bases = context.accepted(check.base) if check.base else ()
    below = descendants(scope, bases)
    return [
        (piece, one.first)
        for piece, one in mine
        if (one.name in below if bases else any(last_part(base) not in ROOTS for base in one.bases))
    ]
