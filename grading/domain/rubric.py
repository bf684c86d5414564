"""What is graded: criteria, their levels and their checks. Values only; `grading.checks` runs them.

A check is deterministic and earns a share between 0 and 1; a criterion's evidence is the weighted mean of
its checks. Names in checks may be any of the rubric's `equivalents`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from grading.domain.model import Show
from grading.domain.value import Value

MAX_LEVEL = 4
DEFAULT_LEVELS = ("nothing usable", "a beginning", "partly there", "good", "complete and convincing")


def _unsaid(value: object) -> bool:
    """Left out of JSON: rubrics stored before, and machines that do not know the field, stay as they are."""
    return value is None or value is False or value == ()


def _default(value: object) -> bool:
    """Left out of JSON: rubrics stored before the key was there stay as they are."""
    return not value


class CheckBase(Value):
    """What every check has.

    `where` limits a check to cells whose place (headings, first comment lines, also those of the matching
    starter cell) matches this regular expression, ignoring case; without it the whole hand-in counts.
    `part` limits it to one question of several in such a cell: from the comment line that matches to the
    next one of the same shape. `files` limits it to paths matching a glob.
    """

    id: str = ""
    label: str = ""
    where: str | None = None
    files: str | None = None
    weight: float = Field(default=1.0, gt=0)
    cap: float = Field(default=1.0, ge=0, le=1)
    """The most this check earns."""
    part: str | None = Field(default=None, exclude_if=_default)
    own_lines: int = Field(default=0, ge=0, le=10_000, exclude_if=_default)
    """With fewer lines of the student's own code in its place it earns nothing."""
    given: bool = Field(default=False, exclude_if=_default)
    """Lines of the starter count as well, where their cell was run."""


class Uses(CheckBase):
    """Calls these functions, found in parsed code. Share = found / asked; with `any_of` one is enough.

    A name may be qualified (`dplyr::filter`, `pd.read_csv`) or bare; an operator such as `%>%` counts.
    """

    kind: Literal["uses"] = "uses"
    all_of: tuple[str, ...] = ()
    any_of: tuple[str, ...] = ()


class Avoids(CheckBase):
    """Calls none of these functions (1 or 0)."""

    kind: Literal["avoids"] = "avoids"
    names: tuple[str, ...]


class Defines(CheckBase):
    """Assigns these variables, columns or functions, found in parsed code.

    Counts assignment targets, `def`, SQL aliases and created tables, and columns made by a named argument
    (`mutate(x = …)`, `df.assign(x=…)`, `df["x"] = …`, `df$x <- …`).
    """

    kind: Literal["defines"] = "defines"
    all_of: tuple[str, ...] = ()
    any_of: tuple[str, ...] = ()


class CodeMatches(CheckBase):
    """Code without comments matches these regular expressions. String literals count as code here."""

    kind: Literal["code_matches"] = "code_matches"
    all_of: tuple[str, ...] = ()
    any_of: tuple[str, ...] = ()
    none_of: tuple[str, ...] = ()


class HasOutput(CheckBase):
    """Cells with student code show an output. Share = cells with one / cells with code."""

    kind: Literal["has_output"] = "has_output"
    image: bool = False
    """Only a picture counts."""


class OutputMatches(CheckBase):
    """Text outputs match these regular expressions."""

    kind: Literal["output_matches"] = "output_matches"
    all_of: tuple[str, ...] = ()
    any_of: tuple[str, ...] = ()


class OutputClose(CheckBase):
    """Numbers in the outputs are close to `values`, or to those of the solution's matching cells.

    Where the work was run, its outputs there count, else those it was handed in with.
    """

    kind: Literal["output_close"] = "output_close"
    values: tuple[float, ...] = ()
    rel_tol: float = 1e-3
    abs_tol: float = 1e-6


class NoErrors(CheckBase):
    """No cell shows an error output and no code fails to parse."""

    kind: Literal["no_errors"] = "no_errors"


class AllExecuted(CheckBase):
    """Code cells carry an execution count or an output. Share = executed / all with code."""

    kind: Literal["all_executed"] = "all_executed"


class Words(CheckBase):
    """The student's own prose has at least this many words. Share = words / at_least, at most 1."""

    kind: Literal["words"] = "words"
    at_least: int = Field(gt=0)


class NoTodo(CheckBase):
    """No placeholder is left: TODO, FIXME, "your code here", "your answer here", or `extra` patterns."""

    kind: Literal["no_todo"] = "no_todo"
    extra: tuple[str, ...] = ()


Counted = Literal["functions", "methods", "classes", "subclasses", "loops", "conditions"]


class Count(CheckBase):
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


class Comments(CheckBase):
    """The student's own comments and docstrings. Share = found / `at_least`, at most 1.

    Comment lines right below one another are one, as are the same words twice. Commented-out code is none.
    """

    kind: Literal["comments"] = "comments"
    at_least: int = Field(gt=0)
    words: int = Field(default=2, ge=1)
    """A comment of fewer words does not count."""


class Documented(CheckBase):
    """The student's own functions, methods and classes have a description. Share = described / all.

    Docstrings, Javadoc, JSDoc and roxygen count; in C, R and SQL any comment directly above a definition.
    """

    kind: Literal["documented"] = "documented"
    of: Literal["all", "functions", "methods", "classes"] = "all"
    words: int = Field(default=1, ge=1)
    """A description of fewer words does not count."""


class FunctionLength(CheckBase):
    """Functions and methods that the student wrote in are not longer than this. Share = short ones / all."""

    kind: Literal["function_length"] = "function_length"
    at_most: int = Field(gt=0)
    """Lines of a function, from its head to its end."""


Style = Literal["snake_case", "camelCase", "PascalCase", "UPPER_CASE", "dotted.case"]


class Naming(CheckBase):
    """Names that the student gave are written in a style. Share = names in it / all, each once.

    Names of one letter, constants in capitals, columns and names that the language prescribes do not count.
    """

    kind: Literal["naming"] = "naming"
    functions: Style | None = None
    variables: Style | None = None
    classes: Style | None = None


class Case(Value):
    """An expression and the value it should have, both in the work's language.

    Without `expected`, the value that the solution gives counts.
    """

    expression: str = Field(max_length=20_000)
    expected: str | None = Field(default=None, max_length=200_000)
    name: str = Field(default="", max_length=200)
    hidden: bool = False


class PassesTests(CheckBase):
    """The work, when run, passes tests. Share = tests passed / tests.

    Tests are `cases`, files of the assignment's folder `tests/` that match the glob `tests` (`test_*.py` by
    unittest or pytest, `test*.R` by testthat, `input_*.txt` with `output_*.txt`), or both.
    """

    kind: Literal["passes_tests"] = "passes_tests"
    cases: tuple[Case, ...] = Field(default=(), max_length=1_000)
    tests: str | None = None
    prelude: str | None = None
    """A file of `tests/` that runs before the work."""
    hidden: bool = False
    """All of them are hidden."""
    show: Show = "input"
    seconds: float = Field(default=5.0, gt=0, le=120)
    """For each test."""
    rel_tol: float = Field(default=1e-9, ge=0)
    abs_tol: float = Field(default=1e-9, ge=0)


class RunsClean(CheckBase):
    """The work runs from its first line to its last without an error. Share = cells that ran / cells.

    Cells that fail only because a package is missing on the server are left out.
    """

    kind: Literal["runs_clean"] = "runs_clean"


class OutputEquals(CheckBase):
    """The outputs, when run, equal `text`, or those of the solution's matching cells.

    Text is compared without blanks at line ends, empty lines and upper case; tables by columns and rows;
    numbers within the tolerances; of plots only that they are there. Share = outputs found / expected.
    """

    kind: Literal["output_equals"] = "output_equals"
    text: str | None = None
    rel_tol: float = Field(default=1e-6, ge=0)
    abs_tol: float = Field(default=1e-9, ge=0)
    show: Show = "name"


class VariableEquals(CheckBase):
    """After the work ran, these variables have the values that the solution gives them, or `values`.

    `values` maps a name to an expression in the work's language. Share = variables right / asked. Tables are
    compared by columns and rows, without regard to the order of columns.
    """

    kind: Literal["variable_equals"] = "variable_equals"
    names: tuple[str, ...] = ()
    values: dict[str, str] = Field(default_factory=dict)
    rel_tol: float = Field(default=1e-6, ge=0)
    abs_tol: float = Field(default=1e-9, ge=0)
    ignore_row_order: bool = False
    show: Show = "name"


class Alternatives(CheckBase):
    """The best of several checks counts."""

    kind: Literal["alternatives"] = "alternatives"
    checks: tuple[Check, ...] = Field(min_length=1)


class Rung(Value):
    """One step of a ladder: when all checks earn in full, this credit."""

    when: tuple[Check, ...] = Field(min_length=1)
    credit: float = Field(ge=0, le=1)
    note: str = ""


class Ladder(CheckBase):
    """The first rung whose checks are all met gives the credit; none gives `otherwise`."""

    kind: Literal["ladder"] = "ladder"
    rungs: tuple[Rung, ...] = Field(min_length=1)
    otherwise: float = Field(default=0.0, ge=0, le=1)


Check = Annotated[
    Uses
    | Avoids
    | Defines
    | CodeMatches
    | HasOutput
    | OutputMatches
    | OutputClose
    | NoErrors
    | AllExecuted
    | Words
    | NoTodo
    | Count
    | Comments
    | Documented
    | FunctionLength
    | Naming
    | PassesTests
    | RunsClean
    | OutputEquals
    | VariableEquals
    | Alternatives
    | Ladder,
    Field(discriminator="kind"),
]


class Criterion(Value):
    """One thing that earns points: `points` × level / highest level, computed by `grading.scoring`."""

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$", max_length=64)
    title: str
    description: str = ""
    stage: str = "analysis"
    points: float = Field(gt=0)
    levels: tuple[str, ...] = DEFAULT_LEVELS
    """What each level means, from 0 up; the last is the highest."""
    checks: tuple[Check, ...] = ()
    where: str | None = None
    """Default `where` of the criterion's checks, and where models should look."""
    bonus: bool = Field(default=False, exclude_if=_unsaid)
    """Its points come on top and do not count towards the maximum."""

    @field_validator("levels")
    @classmethod
    def _two_levels(cls, levels: tuple[str, ...]) -> tuple[str, ...]:
        if len(levels) < 2:
            raise ValueError("needs at least two levels, the lowest first")
        return levels

    @property
    def highest(self) -> int:
        """The highest level, an integer of at least 1."""
        return len(self.levels) - 1


class Adjustment(Value):
    """A deduction, or a cap, of the points of some criteria or of the whole; `grading.scoring` computes it.

    It applies as far as the checks `unless` are not met. Exactly one of `deduct` and `cap` is given.
    """

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$", max_length=64)
    title: str
    description: str = ""
    """What students read about it, beside the title."""
    unless: tuple[Check, ...] = Field(min_length=1)
    """It does not apply where these are met; a check that cannot be run counts as met."""
    at_least: float = Field(default=1.0, gt=0, le=1)
    """Share of the checks from which on they count as met: their weighted mean, with `each` every one's."""
    criteria: tuple[str, ...] = Field(default=(), max_length=1_000)
    """Ids of the criteria whose points it concerns; none is the whole, without bonus criteria."""
    deduct: float | None = Field(default=None, gt=0, le=1)
    """Share of the maximum of those criteria that is taken."""
    cap: float | None = Field(default=None, ge=0, lt=1)
    """Share of the maximum of those criteria that they reach at most."""
    each: bool = False
    """Deducts once for every check that is not met, rather than once."""
    partly: bool = False
    """Deducts in proportion to what is lacking, rather than all or nothing."""
    where: str | None = None
    """Default `where` of its checks."""

    @model_validator(mode="after")
    def _one_way(self) -> Adjustment:
        if (self.deduct is None) == (self.cap is None):
            raise ValueError("give either deduct or cap")
        if self.cap is not None and (self.each or self.partly):
            raise ValueError("each and partly go with deduct only")
        if len(set(self.criteria)) != len(self.criteria):
            raise ValueError("names a criterion twice")
        return self


class Rubric(Value):
    """All criteria of an assignment, with names that count as the same."""

    criteria: tuple[Criterion, ...] = Field(min_length=1)
    equivalents: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """For a name in a check, other names that count (a column renamed in the data)."""
    adjustments: tuple[Adjustment, ...] = Field(default=(), max_length=200, exclude_if=_unsaid)
    """Deductions and caps, from checks. Models neither judge nor see them."""
    bonus_at_most: float | None = Field(default=None, ge=0, exclude_if=lambda value: value is None)
    """Points by which bonus criteria may lift the total above the maximum; without it, all of theirs."""

    @model_validator(mode="after")
    def _unique(self) -> Rubric:
        for what, ids in (
            ("criterion", [one.id for one in self.criteria]),
            ("adjustment", [one.id for one in self.adjustments]),
        ):
            twice = sorted({i for i in ids if ids.count(i) > 1})
            if twice:
                raise ValueError(f"{what} ids must be unique; twice: {', '.join(twice)}")
        return self

    @model_validator(mode="after")
    def _some_count(self) -> Rubric:
        if all(one.bonus for one in self.criteria):
            raise ValueError("needs at least one criterion that is not a bonus")
        if self.bonus_at_most is not None and not any(one.bonus for one in self.criteria):
            raise ValueError("bonus_at_most goes with bonus criteria; mark one with bonus = true")
        return self

    @model_validator(mode="after")
    def _adjustable(self) -> Rubric:
        bonus = {one.id: one.bonus for one in self.criteria}
        for one in self.adjustments:
            unknown = sorted(set(one.criteria) - set(bonus))
            if unknown:
                raise ValueError(
                    f"adjustment '{one.id}' names no criterion of this rubric: {', '.join(unknown)}"
                )
            if len({bonus[name] for name in one.criteria}) > 1:
                raise ValueError(f"adjustment '{one.id}' concerns bonus criteria and others; make two of it")
        for n, one in enumerate(self.adjustments):
            for other in self.adjustments[:n]:
                mine, theirs = set(one.criteria), set(other.criteria)
                if mine & theirs and not (mine <= theirs or theirs <= mine):
                    raise ValueError(
                        f"adjustments '{other.id}' and '{one.id}' share some criteria, but neither concerns "
                        "all of the other's; name the same ones, or separate ones"
                    )
        return self

    @property
    def max_points(self) -> float:
        """The sum of the criteria's points; bonus criteria do not count."""
        return sum(criterion.points for criterion in self.criteria if not criterion.bonus)

    def of_stage(self, stage: str) -> tuple[Criterion, ...]:
        """The criteria a stage judges."""
        return tuple(c for c in self.criteria if c.stage == stage)
