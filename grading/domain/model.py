"""The values of the domain. All are frozen and cross process borders as JSON."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from grading.domain.messages import Message, Params
from grading.domain.value import Value

Show = Literal["everything", "input", "name", "nothing"]
"""What a student sees of a test that failed: all of it, all but the expected value, its name, or only that
there is one. Hidden tests are counted and never shown."""
PRIORITIES = ("interactive", "batch")
"""Of a round: somebody waits for it, or it is one of many."""


class RoundState(StrEnum):
    """Where one grading of one submission stands."""

    RECEIVED = "received"  # stored, evidence not yet computed
    QUEUED = "queued"  # evidence there, waiting for room on the machines
    RUNNING = "running"  # its stages are dispatched
    GRADED = "graded"  # all stages done
    PARTIAL = "partial"  # a stage is dead, another is done: points so far, no total
    FAILED = "failed"  # no stage gave a result

    @property
    def final(self) -> bool:
        """Whether nothing more happens by itself."""
        return self in (RoundState.GRADED, RoundState.PARTIAL, RoundState.FAILED)


class StageState(StrEnum):
    """Where one stage of a round stands."""

    WAITING = "waiting"
    DISPATCHED = "dispatched"
    RUNNING = "running"  # a machine holds the lease
    DONE = "done"
    FAILED = "failed"  # will be tried again
    DEAD = "dead"  # no more tries


class RunState(StrEnum):
    """Where one execution of a stage stands."""

    DISPATCHED = "dispatched"
    DONE = "done"
    FAILED = "failed"
    LOST = "lost"  # its machine died or its message vanished
    DUPLICATE = "duplicate"  # a valid result that came after the first


def _empty(value: tuple[object, ...]) -> bool:
    """Left out of JSON, so that programs which do not know the field still take what has nothing in it."""
    return not value


class Output(Value):
    """One output of a notebook cell, as text. Pictures are only counted."""

    kind: Literal["stream", "result", "display", "error"]
    text: str = ""
    image: bool = False


class Cell(Value):
    """A cell of a notebook, a chunk of an R Markdown file, or a whole script.

    `added` holds the 1-based numbers of the lines of `source` the student wrote (all of them without a
    starter). `place` is text to find the cell by: its headings and first comment, also those of the matching
    starter cell.
    """

    number: int
    kind: Literal["code", "markdown", "raw"]
    source: str
    language: str = "text"
    first_line: int = 1
    """The line of the file at which `source` starts; 1 in notebooks, whose lines count per cell."""
    execution_count: int | None = None
    outputs: tuple[Output, ...] = ()
    place: str = ""
    added: tuple[int, ...] = ()
    played: tuple[Output, ...] = Field(default=(), exclude_if=_empty)
    """What it put out when the school ran it, where it was submitted without outputs."""

    @property
    def lines(self) -> list[str]:
        """The source, line by line."""
        return self.source.split("\n")

    @property
    def own(self) -> str:
        """Only the lines the student wrote."""
        lines = self.lines
        return "\n".join(lines[n - 1] for n in self.added)


class Document(Value):
    """One readable file of a submission, as cells. A script has one cell."""

    path: str
    kind: Literal["notebook", "script", "prose"]
    language: str
    cells: tuple[Cell, ...]
    notes: tuple[str, ...] = ()
    """What was repaired or left out while reading, a plain sentence each."""


class Location(Value):
    """A place in a submission. `line` counts in the cell for notebooks, in the file otherwise."""

    document: str
    cell: int | None = None
    line: int | None = None


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
