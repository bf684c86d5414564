"""The values of the domain. All are frozen and cross process borders as JSON."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from pydantic import Field, field_validator

from grading.errors import Retry
from grading.rubric import Rubric, Show, Value


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
    """What it put out when the school ran it, where it was handed in without outputs."""

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
    """One readable file of a hand-in, as cells. A script has one cell."""

    path: str
    kind: Literal["notebook", "script", "prose"]
    language: str
    cells: tuple[Cell, ...]
    notes: tuple[str, ...] = ()
    """What was repaired or left out while reading, a plain sentence each."""


class Location(Value):
    """A place in a hand-in. `line` counts in the cell for notebooks, in the file otherwise."""

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
    """Why it did not pass: an error, a limit, the first difference."""
    hidden: bool = False
    show: Show = "input"


class CheckOutcome(Value):
    """What one check earned, from 0 to 1, and why."""

    check: str
    label: str
    earned: float = Field(ge=0, le=1)
    weight: float = 1.0
    message: str = ""
    location: Location | None = None
    tests: tuple[TestOutcome, ...] = Field(default=(), exclude_if=_empty)


class CriterionEvidence(Value):
    """The checks of one criterion. `share` is their weighted mean, or nothing without checks."""

    criterion: str
    share: float | None = Field(default=None, ge=0, le=1)
    outcomes: tuple[CheckOutcome, ...] = ()


class Flag(Value):
    """Something a person should see; `hold` keeps the grade from being released unseen."""

    code: str
    message: str
    hold: bool = False
    location: Location | None = None


class Evidence(Value):
    """All that was found without a model."""

    criteria: tuple[CriterionEvidence, ...] = ()
    flags: tuple[Flag, ...] = ()
    added_lines: int = 0
    """Lines of code and prose the student wrote, blank ones not counted."""

    def of(self, criterion: str) -> CriterionEvidence | None:
        """The evidence of one criterion."""
        return next((c for c in self.criteria if c.criterion == criterion), None)


class Material(Value):
    """What a whole class shares: goes into the system message, so that machines can cache its prefix."""

    title: str
    task: str = ""
    instructions: str = ""
    """The instructor's own words for this stage."""
    starter: str = ""
    solution: str = ""


class Job(Value):
    """What a machine is sent to do: one run of one stage. Holds no name of a student."""

    run_id: str
    round_id: str
    stage: str
    attempt: int = 1
    material: Material
    rubric: Rubric
    documents: tuple[Document, ...]
    evidence: Evidence
    nonce: str
    """Random hex, fences what the student wrote; new for every run."""
    budget_s: float
    max_output_tokens: int
    temperature: float = 0.3
    avoid: tuple[str, ...] = ()
    """Machines that failed at it; they hand it on while another one that can do it is alive."""
    alone: bool = False
    """It was lost together with other runs: nothing else runs beside it."""


class Quote(Value):
    """Words taken from the hand-in; `location` is set by the check that found them there."""

    text: str = Field(max_length=600)
    location: Location | None = None


class Judgement(Value):
    """The level a stage proposes for a criterion."""

    criterion: str
    level: int = Field(ge=0)
    reason: str = ""
    quotes: tuple[Quote, ...] = ()


class Finding(Value):
    """A remark at a place in the hand-in."""

    severity: Literal["praise", "note", "minor", "major"]
    title: str
    detail: str = ""
    location: Location | None = None


class Suggestion(Value):
    """What to do better, why, and how, with a short example."""

    what: str
    why: str
    how: str
    example: str = ""
    location: Location | None = None


class AnalysisOutput(Value):
    """The technical review."""

    judgements: tuple[Judgement, ...]
    summary: str = ""
    strengths: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    suggestions: tuple[Suggestion, ...] = ()


class FeedbackOutput(Value):
    """The personal feedback."""

    judgements: tuple[Judgement, ...]
    achieved: str
    reflection: str
    strengths: tuple[str, ...] = ()
    practice: str
    develop: tuple[str, ...] = ()
    next_step: str


class Tokens(Value):
    """Tokens counted by the engine; `cached` of the prompt came from a prefix cache."""

    prompt: int = 0
    cached: int = 0
    output: int = 0


class Provenance(Value):
    """How a result came about."""

    machine: str
    engine: str
    model: str
    digest: str = ""
    prompt_version: str = ""
    prompt_hash: str = ""
    sampling: dict[str, Any] = Field(default_factory=dict)
    tokens: Tokens = Tokens()
    first_token_s: float | None = None
    seconds: float = 0.0
    repaired: bool = False
    uses_model: bool = True
    """False for the `rules` engine."""


class Result(Value):
    """What a machine sends back: an output that follows the stage's schema, or an error code."""

    run_id: str
    round_id: str
    stage: str
    ok: bool
    output: dict[str, Any] = Field(default_factory=dict)
    flags: tuple[Flag, ...] = ()
    error: str | None = None
    message: str = ""
    retry: Retry = "elsewhere"
    provenance: Provenance

    @field_validator("retry", mode="before")
    @classmethod
    def _older(cls, retry: object) -> object:
        """Machines of version 0.1 say only whether another try may help."""
        return {True: "elsewhere", False: "never"}[retry] if isinstance(retry, bool) else retry


class CriterionGrade(Value):
    """Points of one criterion, or none when it could not be judged."""

    criterion: str
    title: str
    stage: str
    points: float | None
    max_points: float
    level: float | None
    highest: int
    basis: Literal["checks", "rules", "model", "checks and model", "ungraded"]
    reason: str = ""
    evidence: tuple[CheckOutcome, ...] = ()
    quotes: tuple[Quote, ...] = ()


class Report(Value):
    """The combined outcome of a round."""

    status: RoundState
    criteria: tuple[CriterionGrade, ...]
    points: float | None
    """The total; nothing while a stage is missing (then see `points_so_far`)."""
    points_so_far: float
    max_points: float
    held: bool = False
    flags: tuple[Flag, ...] = ()
    analysis: AnalysisOutput | None = None
    feedback: FeedbackOutput | None = None
    stages: dict[str, Provenance] = Field(default_factory=dict)
    failures: dict[str, str] = Field(default_factory=dict)
    """For a stage without a result, the sentence that says why."""
    notice: str = ""
    """Who or what wrote this report, in plain words."""
