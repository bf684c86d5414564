"""Kinds of checks that are made of others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Literal

from pydantic import Field

from grading.checks.context import NOTHING_ADDED, Context, Finding
from grading.checks.evaluate import FULL, evaluate
from grading.checks.kind import CheckKind
from grading.checks.message_parts import listed
from grading.checks.scope import Scope
from grading.domain.base_value import Value
from grading.domain.check import Check, CheckBase
from grading.domain.messages import Message, MessageType, define_message, verbatim

NO_WAY = define_message("check.ladder.none", "none of the described ways was found")


class Alternatives(CheckKind):
    """Only the check with the best result counts."""

    kind: Literal["alternatives"] = "alternatives"
    checks: tuple[Check, ...] = Field(min_length=1)

    title: ClassVar[MessageType] = define_message("check.alternatives.title", "Best of several checks")
    about: ClassVar[MessageType] = define_message(
        "check.alternatives.about", "Only the check with the best result counts."
    )
    usual_label: ClassVar[MessageType] = define_message("check.alternatives.label", "one of several ways")
    combined: ClassVar[bool] = True

    def evaluate(self, context: Context, scope: Scope) -> Finding:
        """The best of several checks."""
        inner = context.narrowed(self)
        found = [evaluate(each, inner) for each in self.checks]
        usable = [f for f in found if f.earned is not None]
        best = max(usable, key=lambda f: f.earned or 0.0) if usable else found[0]
        return replace(best, broken=next((f.broken for f in found if f.broken), None))

    def inner(self) -> Iterator[tuple[str, CheckBase]]:
        """The checks, the best of which counts."""
        return ((f"checks[{n}]", check) for n, check in enumerate(self.checks))


class Rung(Value):
    """One step of a ladder: when all checks earn in full, this credit."""

    when: tuple[Check, ...] = Field(min_length=1)
    credit: float = Field(ge=0, le=1)
    note: str = ""


class Ladder(CheckKind):
    """The first step whose checks all pass sets the credit. If no step applies, the credit is `otherwise`."""

    kind: Literal["ladder"] = "ladder"
    rungs: tuple[Rung, ...] = Field(min_length=1)
    otherwise: float = Field(default=0.0, ge=0, le=1)

    title: ClassVar[MessageType] = define_message("check.ladder.title", "Partial credit")
    about: ClassVar[MessageType] = define_message(
        "check.ladder.about",
        "The first step whose checks all pass sets the credit. If no step applies, the credit is "
        "`otherwise`.",
    )
    field_titles: ClassVar[Mapping[str, MessageType]] = {
        "rungs": define_message("check.ladder.rungs", "Steps, best first"),
        "otherwise": define_message("check.ladder.otherwise", "Credit if no step applies (0 to 1)"),
        "when": define_message("check.ladder.when", "When all of these checks pass"),
        "credit": define_message("check.ladder.credit", "Credit (0 to 1)"),
        "note": define_message("check.ladder.note", "Note"),
    }
    usual_label: ClassVar[MessageType] = define_message("check.ladder.label", "how it was done")
    combined: ClassVar[bool] = True

    def evaluate(self, context: Context, scope: Scope) -> Finding:
        """The credit of the first rung whose checks all earn in full.

        Does not apply when a rung is only unmet by checks that do not apply.
        """
        if not scope.added:
            return Finding(0.0, scope.problem or NOTHING_ADDED())
        inner = context.narrowed(self)
        surplus = broken = None
        for rung in self.rungs:
            found = [evaluate(each, inner) for each in rung.when]
            surplus = next((f.surplus for f in found if f.surplus), surplus)
            broken = next((f.broken for f in found if f.broken), broken)
            if any(f.earned is not None and f.earned < FULL for f in found):
                continue
            missing = next((f for f in found if f.earned is None), None)
            if missing is not None:
                return replace(missing, surplus=surplus, broken=broken)
            if found:
                place = next((f.location for f in found if f.location), None)
                tests = tuple(test for f in found for test in f.tests)
                note = verbatim(rung.note) if rung.note else _told(found)
                return Finding(rung.credit, note, place, tests, surplus, broken)
        return Finding(self.otherwise, NO_WAY(), surplus=surplus, broken=broken)

    def inner(self) -> Iterator[tuple[str, CheckBase]]:
        """The checks of all rungs."""
        for n, rung in enumerate(self.rungs):
            yield from ((f"rungs[{n}].when[{i}]", check) for i, check in enumerate(rung.when))


def _told(found: Sequence[Finding]) -> Message:
    """What several checks found, without their tests."""
    told = listed(one.headline for one in found)
    return told if isinstance(told, Message) else verbatim(told)
