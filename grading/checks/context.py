"""What a check is given and what it gives back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from grading.checks.question_parts import parted
from grading.checks.scope import Piece, Scope, Scopes, executed, runs_recorded
from grading.domain.check import CheckBase
from grading.domain.document import Location, Output
from grading.domain.evidence import TestOutcome
from grading.domain.messages import Message, define_message
from grading.domain.rubric import Rubric
from grading.execution.results import Ran

FIRST_FAILED = define_message("check.tests.first_failed", "%(summary)s; the first that failed: %(first)s")
"""`first` may tell what a test expects; `summary` never does."""
NOTHING_ADDED = define_message("check.nothing_added", "nothing was added here")
NO_CODE = define_message("check.no_code", "no code was added here")
ASKS_FOR_NOTHING = define_message("check.asks_for_nothing", "the check asks for nothing")
DOES_NOT_APPLY = define_message("check.does_not_apply", "does not apply: %(reason)s")
_MISREAD = define_message("check.other_language", "%(path)s cannot be read as %(language)s, but as %(other)s")


@dataclass(frozen=True)
class Finding:
    """What a check found: a share from 0 to 1, or nothing where the check does not apply."""

    earned: float | None
    message: Message
    location: Location | None = None
    tests: tuple[TestOutcome, ...] = ()
    surplus: Message | None = None
    """Why an output holds too much to be an answer, as a clause: a person must look at it."""
    broken: Message | None = None
    """Why the check itself is wrong, as a clause for the instructor."""

    @property
    def headline(self) -> Message:
        """The message without what only instructors see of tests."""
        return headline(self.message)


def headline(message: Message) -> Message:
    """A finding without the first test that failed."""
    summary = message.params.get("summary")
    return summary if message.code == FIRST_FAILED.code and isinstance(summary, Message) else message


@dataclass(frozen=True)
class Context:
    """The submission, the rubric and the solution a check looks at; `where` is the criterion's.

    `ran` is what running the work showed, or nothing where it was not run.
    """

    documents: Scopes
    rubric: Rubric
    solution: Scopes
    where: str | None = None
    ran: Ran | None = None
    is_solution: bool = False
    """Whether the documents are the solution, looked at as if somebody had submitted it."""
    part: str | None = None
    given: bool = False
    """Of the check around those that are run now."""

    def solved(self) -> Context:
        """The same for the solution in the place of the submission."""
        return replace(self, documents=self.solution, is_solution=True)

    def scope(self, check: CheckBase, documents: Scopes | None = None) -> Scope:
        """The pieces a check looks at, in the submission or in other documents."""
        where = check.where if check.where is not None else self.where
        part = check.part if check.part is not None else self.part
        chosen = documents or self.documents
        scope, key = chosen.find(where, check.files), (where, check.files, part)
        if part is not None:
            scope = chosen.remembered(key, partial(_parted, scope, part, where))
        if not self.counts_given(check) or documents is not None:
            return scope
        return chosen.remembered((*key, "given"), partial(self._with_given, scope))

    def counts_given(self, check: CheckBase) -> bool:
        """Whether lines of the starter count for a check as well."""
        return check.given or self.given

    def _with_given(self, scope: Scope) -> Scope:
        """All lines of the cells that were run count, not only those that were added."""
        pieces = (piece.whole() if self._was_run(piece) else piece for piece in scope.pieces)
        return replace(scope, pieces=tuple(pieces))

    def _was_run(self, piece: Piece) -> bool:
        if piece.cell.kind != "code" or executed(piece.cell):
            return piece.cell.kind == "code"
        if self.ran is None:
            return False
        played = self.ran.played(piece.document.path, solution=self.is_solution) or {}
        one = played.get(piece.cell.number)
        return one is not None and one.state == "ran"

    def accepted(self, name: str) -> tuple[str, ...]:
        """The name and those that count as the same."""
        return (name, *self.rubric.equivalents.get(name, ()))

    def narrowed(self, check: CheckBase) -> Context:
        """The context for checks inside a check."""
        where = check.where if check.where is not None else self.where
        part = check.part if check.part is not None else self.part
        return replace(self, where=where, part=part, given=self.counts_given(check))

    def in_other_language(self, scope: Scope) -> Message | None:
        """Why code cannot be what the assignment asks for, as a clause; nothing when any of it may be."""
        if self.ran is None or self.is_solution:
            return None
        foreign = self.ran.plan.foreign
        reasons = [foreign.get(piece.document.path) or self._misread(piece) for piece in scope.code]
        return reasons[0] if all(reasons) and reasons else None

    def _misread(self, piece: Piece) -> Message | None:
        """Why a script cannot be in the language that its name says, as a clause; nothing when it may be."""
        other = {"python": "r", "r": "python"}.get(piece.document.language)
        failed = self.ran is not None and self.ran.failed(piece.document.path)
        if other is None or piece.document.kind != "script" or not piece.facts.errors or not failed:
            return None
        if piece.reader.facts(piece.cell.source, other).errors:
            return None
        own = "Python" if other == "r" else "R"
        return _MISREAD(path=piece.document.path, language=own, other=other.capitalize())

    def outputs(self, piece: Piece, *, solution: bool = False) -> tuple[Output, ...] | None:
        """What a cell put out when it was run here, else what it was submitted with; nothing for a script."""
        if self.ran is not None:
            solution = solution or self.is_solution
            shown = self.ran.outputs(piece.document.path, piece.cell.number, solution=solution)
            if shown is not None:
                return shown
            if not solution and piece.document.path in self.ran.plan.foreign:
                return ()  # it was not run, but through its own fault
        return piece.cell.outputs if runs_recorded(piece.document) else None


def _parted(scope: Scope, part: str, where: str | None) -> Scope:
    return parted(scope, part, placed=where is not None)
