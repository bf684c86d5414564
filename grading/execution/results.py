"""What the executions of a plan showed, as the checks ask for it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

from grading.domain.document import Output
from grading.domain.messages import Message, define_message, verbatim
from grading.execution.plan import Plan
from grading.execution.planned_requests import Slot
from grading.execution.values import Answer, Execution, Played, Request, Tested

NO_RUN = define_message("run.none", "The sandbox returned no result.")
NO_SANDBOX = define_message("run.no_sandbox_here", "This server has no sandbox.")
NOT_REACHED = Answer(state="not reached")
_PACKAGE = re.compile(
    r"No module named ['\"](?P<python>[\w.]+)|there is no package called .?(?P<r>[\w.]+)"
    r"|package .?(?P<namespace>[\w.]+).{0,3} (?:is )?not found"
)
_ELSEWHERE = re.compile(
    r"FileNotFoundError|No such file or directory|cannot open (?:the connection|file|URL|compressed)"
    r"|does not exist in current working directory|path.{0,300}does not exist"
    r"|URLError|ConnectionError|Could(?:n't| not) resolve|Name or service not known|Network is unreachable"
    r"|Temporary failure in name resolution|cannot change working directory",
    re.IGNORECASE,
)
"""Errors that a cell has here and not where it was written: files and networks that sandboxes lack."""
_FOLLOWS = re.compile(r"^NameError|object .{1,200} not found|could not find function")
"""Errors of a cell that uses what an earlier one could not make."""
_WANTS = re.compile(r"is not defined|has no attribute|cannot import name|not found|could not find function")
"""Errors of a test that uses what the work could not make."""


@dataclass(frozen=True)
class Ran:
    """The executions of one submission. `executions` has the keys of `plan.requests`; one may be missing."""

    plan: Plan
    executions: Mapping[str, Execution] = field(default_factory=lambda: MappingProxyType({}))
    _known: dict[tuple[str, bool, bool], frozenset[int]] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )
    _cells: dict[tuple[str, bool], Mapping[int, Played] | None] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    @cached_property
    def problem(self) -> Message | None:
        """Why the work was not run, as a sentence; nothing when every execution of it was."""
        for key in self._keys("work"):
            execution = self.executions.get(key)
            if execution is None:
                return NO_RUN()
            if execution.end == "not run":
                return verbatim(execution.reason) if execution.reason else NO_SANDBOX()
        return None

    @cached_property
    def stopped(self) -> tuple[tuple[str, Execution], ...]:
        """Path and execution of each document of the work that a limit stopped, or that ended itself."""
        found = ((key, self.execution(key)) for key in self._keys("work"))
        return tuple(
            (self.plan.requests[key].work.document, t) for key, t in found if t and t.end != "finished"
        )

    @cached_property
    def missing(self) -> tuple[str, ...]:
        """Packages of the assignment that the work asked for and the server does not have, sorted."""
        return tuple(sorted(name for name in self._wanted if name in self.plan.known))

    @cached_property
    def unknown(self) -> tuple[str, ...]:
        """Packages that the work asked for, that are not here, and that the assignment does not use."""
        return tuple(sorted(name for name in self._wanted if name not in self.plan.known))

    @property
    def _wanted(self) -> set[str]:
        executions = (self.execution(key) for key in self._keys("work"))
        return {name for execution in executions if execution for name in execution.missing}

    def execution(self, key: str | None) -> Execution | None:
        """An execution that was made; nothing without a sandbox."""
        execution = self.executions.get(key) if key is not None else None
        return None if execution is None or execution.end == "not run" else execution

    def answer(self, slot: Slot | None) -> Answer | None:
        """What was answered; nothing when it was not asked, or nothing was run."""
        execution = self.execution(slot.execution) if slot is not None else None
        if slot is None or execution is None:
            return None
        if slot.number is None:
            return execution.variables.get(slot.variable, NOT_REACHED) if slot.variable else None
        return execution.answers[slot.number] if slot.number < len(execution.answers) else NOT_REACHED

    def tests(self, key: str | None, file: str) -> tuple[Tested, ...]:
        """What became of the tests of a file in an execution."""
        execution = self.execution(key)
        return () if execution is None else tuple(t for t in execution.tests if t.file == file)

    def played(self, path: str, *, solution: bool = False) -> Mapping[int, Played] | None:
        """What became of each cell of a document, by number; nothing when it was not run."""
        if (path, solution) not in self._cells:
            key = (self.plan.solutions if solution else self.plan.works).get(path)
            execution = self.execution(key)
            cells = None if key is None or execution is None else self._played(key, execution)
            self._cells[path, solution] = cells
        return self._cells[path, solution]

    def failed(self, path: str) -> bool:
        """Whether any cell of a document of the work failed."""
        executions = [
            self.execution(key) for key in self._keys("work") if self._request(key).work.document == path
        ]
        return any(
            cell.state == "failed" for execution in executions if execution for cell in execution.cells
        )

    def _played(self, key: str, execution: Execution) -> Mapping[int, Played]:
        asked = [code.number for code in self._request(key).work.cells]
        have = {cell.number: cell for cell in execution.cells}
        return {n: have.get(n, Played(number=n, state="not reached")) for n in asked}

    def excused(self, path: str, *, also_elsewhere: bool = False, solution: bool = False) -> frozenset[int]:
        """Cells that failed because a package is missing here, and those after them that lack what they make.

        `also_elsewhere` adds what failed for want of a file or a network that only the student has. What was
        not reached is never excused: the run was ended by the work itself, or by a limit.
        """
        asked = (path, also_elsewhere, solution)
        if asked not in self._known:
            self._known[asked] = self._excused(*asked)
        return self._known[asked]

    def _excused(self, path: str, also_elsewhere: bool, solution: bool) -> frozenset[int]:
        cells = self.played(path, solution=solution) or {}
        execution = self.execution((self.plan.solutions if solution else self.plan.works).get(path))
        missing = self._lacking(execution, solution)
        found: set[int] = set()
        for number, cell in cells.items():
            lacking = cell.state == "failed" and lacks(cell.error, missing)
            if also_elsewhere:
                lacking = lacking or (cell.state == "failed" and bool(_ELSEWHERE.search(cell.error[:2000])))
            follows = found and cell.state == "failed" and _FOLLOWS.search(cell.error[:2000])
            if lacking or follows:
                found.add(number)
        return frozenset(found)

    def lacking(self, key: str | None) -> bool:
        """Whether an execution of the work stopped somewhere because a package is missing here."""
        execution = self.execution(key)
        if execution is None:
            return False
        missing = self._lacking(execution)
        return any(c.state == "failed" and lacks(c.error, missing) for c in execution.cells)

    def _lacking(self, execution: Execution | None, solution: bool = False) -> tuple[str, ...]:
        """What an execution lacks through no fault of the work; the solution's are the assignment's."""
        missing = execution.missing if execution is not None else ()
        return missing if solution else tuple(name for name in missing if name in self.plan.known)

    def lost(self, key: str, error: str) -> bool:
        """Whether a test may have failed with `error` only because a package is missing here.

        Then a person must look: nobody can tell whether the work is right.
        """
        execution = self.execution(key)
        if execution is None or not self.lacking(key):
            return False
        return lacks(error, self._lacking(execution)) or bool(_WANTS.search(error[:2000]))

    def outputs(self, path: str, number: int, *, solution: bool = False) -> tuple[Output, ...] | None:
        """What a cell put out here; nothing when it was not run, or failed for what only we lack."""
        cell = (self.played(path, solution=solution) or {}).get(number)
        if cell is None or number in self.excused(path, also_elsewhere=True, solution=solution):
            return None
        # a solution that fails here was right where its outputs come from
        return cell.outputs if not solution or cell.state == "ran" else None

    def _keys(self, role: str) -> Iterator[str]:
        return (key for key in self.plan.requests if key.startswith(f"{role}:"))

    def _request(self, key: str) -> Request:
        return self.plan.requests[key]


def lacks(error: str, missing: tuple[str, ...]) -> bool:
    """Whether an error says that one of these packages is not installed."""
    hit = _PACKAGE.search(error[:2000])
    if hit is None:
        return False
    name = hit["python"] or hit["r"] or hit["namespace"] or ""
    return name in missing or name.partition(".")[0] in missing
