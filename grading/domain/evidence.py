"""What checks found in a submission without a model: outcomes, flags."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from grading.domain.base_value import Value
from grading.domain.document import Location
from grading.domain.messages import Message, Params

Show = Literal["everything", "input", "name", "nothing"]
"""What a student sees of a test that failed: all of it, all but the expected value, its name, or only that
there is one. Hidden tests are counted and never shown."""


def _empty(value: tuple[object, ...]) -> bool:
    """Left out of JSON, so that programs which do not know the field still take what has nothing in it."""
    return not value


class TestOutcome(Value):
    """One test that the work passed or not. `show` and `hidden` decide what a student may see of it."""

    __test__ = False  # not a test of pytest's

    name: str
    passed: bool
    input: str = ""
    expected: str = ""
    got: str = ""
    message: str = ""
    """Why it did not pass: an error, a limit, the first difference. In English."""
    code: str = Field(default="", exclude_if=_empty)
    """Which message it is; empty where the work itself says why."""
    params: Params = Field(default_factory=dict, exclude_if=_empty)
    hidden: bool = False
    show: Show = "input"

    @property
    def coded(self) -> Message:
        """Why it did not pass, to be rendered in a language."""
        return Message(code=self.code, params=self.params, message=self.message)


class CheckOutcome(Value):
    """What one check earned, from 0 to 1, and why."""

    check: str
    label: str
    earned: float = Field(ge=0, le=1)
    weight: float = 1.0
    message: str = ""
    """In English."""
    code: str = Field(default="", exclude_if=_empty)
    """Which message it is; empty where an older version wrote it."""
    params: Params = Field(default_factory=dict, exclude_if=_empty)
    location: Location | None = None
    tests: tuple[TestOutcome, ...] = Field(default=(), exclude_if=_empty)

    @property
    def coded(self) -> Message:
        """What it says, to be rendered in a language."""
        return Message(code=self.code, params=self.params, message=self.message)


class CriterionEvidence(Value):
    """The checks of one criterion. `share` is their weighted mean, or nothing without checks."""

    criterion: str
    share: float | None = Field(default=None, ge=0, le=1)
    outcomes: tuple[CheckOutcome, ...] = ()


class AdjustmentEvidence(Value):
    """The checks of one adjustment of the rubric; one of weight 0 could not be decided."""

    adjustment: str
    outcomes: tuple[CheckOutcome, ...] = ()


class Flag(Value):
    """Something a person should see; `hold` keeps the grade from being released unseen."""

    code: str
    """What kind of flag it is."""
    message: str
    """In English."""
    message_code: str = Field(default="", exclude_if=_empty)
    """Which message it is; empty where an older version wrote it."""
    params: Params = Field(default_factory=dict, exclude_if=_empty)
    """Of the message."""
    hold: bool = False
    location: Location | None = None

    def __hash__(self) -> int:
        return hash((self.code, self.message, self.hold, self.location))

    @classmethod
    def of(cls, code: str, said: Message, *, hold: bool = False, location: Location | None = None) -> Flag:
        """A flag that says this."""
        return cls(
            code=code,
            message=said.message,
            message_code=said.code,
            params=said.params,
            hold=hold,
            location=location,
        )

    @property
    def coded(self) -> Message:
        """What it says, to be rendered in a language."""
        return Message(code=self.message_code, params=self.params, message=self.message)


class Evidence(Value):
    """All that was found without a model."""

    criteria: tuple[CriterionEvidence, ...] = ()
    flags: tuple[Flag, ...] = ()
    added_lines: int = 0
    """Lines of code and prose the student wrote, blank ones not counted."""
    adjustments: tuple[AdjustmentEvidence, ...] = Field(default=(), exclude_if=_empty)

    def of(self, criterion: str) -> CriterionEvidence | None:
        """The evidence of one criterion."""
        return next((c for c in self.criteria if c.criterion == criterion), None)
