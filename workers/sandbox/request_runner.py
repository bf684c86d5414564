"""Runs one request in a sandbox, from a fork server that has imported its packages where there is one."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from pydantic import ValidationError

from grading.domain.base_value import Value
from grading.domain.errors import SandboxUnavailable
from grading.execution.values import (
    ENDED_EARLY,
    Answer,
    CodeLanguage,
    End,
    Execution,
    Expression,
    Played,
    Request,
    Tested,
    TestFile,
)
from workers.sandbox.backends.base import Backend, Ending, Mount, Prepared, SandboxSpec, Session
from workers.sandbox.runtimes.base import Runtime

Kind = Literal["work", "tests"]
TIDYVERSE = frozenset("ggplot2 tibble tidyr readr purrr dplyr stringr forcats lubridate".split())
HEAVY: dict[CodeLanguage, frozenset[str]] = {
    "python": frozenset("numpy pandas matplotlib scipy sklearn seaborn statsmodels pytest".split()),
    "r": TIDYVERSE | frozenset("scales data.table testthat broom".split()),
}
"""What takes long to load; anything else is imported by the work itself."""
_NAMED = {
    "python": re.compile(r"^[ \t]*(?:import|from)[ \t]+(\w+)", re.MULTILINE),
    "r": re.compile(
        r"\b(?:library|require|requireNamespace|loadNamespace)\s*\(\s*[\"']?([\w.]+)|\b([\w.]+)::"
    ),
}


def prepared(runtime: Runtime, request: Request, kind: Kind) -> Prepared | None:
    """What does the same as starting the driver; None where there is no fork server in this language."""
    if not runtime.fork_argv:
        return None
    found = packages(request, kind) & (runtime.packages or frozenset())
    argv = (*runtime.fork_argv, kind, *sorted(found))
    return Prepared(argv, runtime.fork_mounts, tuple(sorted(runtime.environ.items())))


def packages(request: Request, kind: Kind) -> frozenset[str]:
    """The packages of HEAVY that the code names; nothing else is loaded, so that what a program sees of
    packages is what it asked for.
    """
    language = request.work.language
    sources = [request.work.prelude, *(cell.source for cell in request.work.cells)]
    own = frozenset(_named(language, sources))
    if kind == "tests":
        # values of the work's packages come to the tests, too
        tests = frozenset(_named(language, [file.source for file in request.tests]))
        own = {"python": (own & {"numpy", "pandas"}) | tests, "r": tests | {"testthat"}}[language]
    if "tidyverse" in own:
        own |= TIDYVERSE
    found = own & HEAVY[language]
    if kind == "work" and request.work.kind == "notebook":
        found |= {"IPython"} if language == "python" else {"repr"}
    return found


def _named(language: CodeLanguage, sources: Iterable[str]) -> Iterable[str]:
    for source in sources:
        for match in _NAMED[language].finditer(source):
            yield next(name for name in match.groups() if name)


log = logging.getLogger(__name__)
V = TypeVar("V", bound=Value)
START_S = 20.0
"""For the interpreter and its packages to come up on a busy machine."""
GRACE_S = 2.0
"""What a driver gets on top, to say itself that a limit was reached."""
MOST_TESTS = 1_000
"""Of one file."""
MOST_PARTS = 3_000_000
"""Of all that the work gives out: cells of tables and items of lists count one, values and outputs OBJECT.
Each is an object in this process, far larger than the line it came in."""
OBJECT = 10
NOT_REACHED = Answer(state="not reached")
TOO_LARGE = Answer(state="error", error="the value is too large to be compared")


@dataclass(frozen=True)
class Executor:
    """Runs requests in a sandbox; any number at the same time."""

    backend: Backend
    runtime: Callable[[CodeLanguage], Runtime]

    def image(self, language: CodeLanguage) -> str:
        """What a request in this language runs in; part of the cache's key."""
        return f"{self.backend.name}:{self.runtime(language).digest}"

    def problem(self, language: CodeLanguage) -> str:
        """Why nothing in this language can be run here; empty when it can."""
        return self.backend.problem() or self.runtime(language).problem

    def run(self, request: Request, mounts: Sequence[Mount] = ()) -> Execution:
        """Run it; `mounts` are the request's files. Never raises because of what the work does.

        Raises SandboxUnavailable when the server cannot run it just now.
        """
        began = time.monotonic()
        language = request.work.language
        problem = self.problem(language)
        if problem:
            return Execution(end="not run", reason=problem, sandbox=self.backend.name)
        try:
            talk, ending = self._talk(request, mounts)
        except OSError as error:  # no more processes, descriptors or memory
            raise SandboxUnavailable(f"The sandbox could not be used: {error.strerror or error}.") from error
        if ending.end == "not run":
            raise SandboxUnavailable(ending.reason)
        return Execution(
            end=ending.end,
            reason=ending.reason,
            code=ending.clause.code,
            params=ending.clause.params,
            cells=talk.all_cells(),
            variables={name: talk.variables.get(name, NOT_REACHED) for name in request.variables},
            answers=tuple(
                (talk.answers + [NOT_REACHED] * len(request.expressions))[: len(request.expressions)]
            ),
            tests=tuple(talk.tests),
            missing=tuple(name for name in talk.missing if name not in self.runtime(language).packages),
            seconds=round(time.monotonic() - began, 3),
            sandbox=self.backend.name,
            image=self.image(language),
        )

    def _talk(self, request: Request, mounts: Sequence[Mount]) -> tuple[Talk, Ending]:
        tools = self.runtime(request.work.language)
        ready = prepared(tools, request, "work")
        own = SandboxSpec(tools.work_argv, (*tools.mounts, *mounts), tools.environ, request.limits, ready)
        with self.backend.open(own) as work:
            talk = Talk(request, work)
            if talk.play() and talk.look() and talk.ask():
                for file in request.tests:
                    # the tests see the data too, but never the submission's files
                    held = [m for m in mounts if m.target.startswith("/data/")]
                    ready = prepared(tools, request, "tests")
                    seen = (*tools.mounts, *held)
                    self._test(
                        talk, file, SandboxSpec(tools.tests_argv, seen, tools.environ, request.limits, ready)
                    )
            whole = not talk.gone
            if whole:
                work.send({"do": "end"})
            ending = work.close()
        if whole:
            return talk, Ending("finished")
        return talk, ending if ending.end != "finished" else LEFT

    def _test(self, talk: Talk, file: TestFile, spec: SandboxSpec) -> None:
        with self.backend.open(spec) as tests:
            talk.test(file, tests)


LEFT = Ending("left", ENDED_EARLY())


@dataclass
class Talk:
    """The talk about one request; `gone` when the work's sandbox is no more."""

    request: Request
    work: Session
    cells: dict[int, Played] = field(default_factory=dict)
    variables: dict[str, Answer] = field(default_factory=dict)
    answers: list[Answer] = field(default_factory=list)
    tests: list[Tested] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    gone: bool = False
    room: int = MOST_PARTS

    def play(self) -> bool:
        """Run the work from its first line to its last; False when its sandbox ended."""
        work, limits = self.request.work, self.request.limits
        self.work.send(
            {
                "do": "play",
                "work": work.model_dump(mode="json"),
                "as_main": self.request.as_main,
                "cell_s": limits.cell_s,
                "output_kb": limits.output_kb,
            }
        )
        known = {cell.number for cell in work.cells}
        wait = START_S
        while (message := self._next(wait + limits.cell_s + GRACE_S)) is not None:
            wait = 0.0
            if message.get("event") == "played":
                return True
            if message.get("event") == "missing" and len(self.missing) < 50:
                self._missing(message.get("package"))
            if message.get("event") == "cell" and not self._fits(message):
                message = {**message, "outputs": []}
            played = _read(Played, message, "cell")
            if played is not None and played.number in known:
                self.cells[played.number] = played
        return False

    def _missing(self, package: object) -> None:
        if isinstance(package, str) and package[:100] not in self.missing:
            self.missing.append(package[:100])

    def look(self) -> bool:
        """Read the variables that are asked for."""
        for name in self.request.variables:
            answer = self._answer({"do": "look", "name": name}, self.request.limits.cell_s)
            if answer is None:
                return False
            self.variables[name] = answer
        return True

    def ask(self) -> bool:
        """Evaluate the expressions, one after the other."""
        for expression in self.request.expressions:
            answer = self._answer(_asking(expression), expression.seconds)
            if answer is None:
                return False
            self.answers.append(answer)
        return True

    def _answer(self, question: Mapping[str, Any], seconds: float) -> Answer | None:
        self.work.send(question)
        deadline = time.monotonic() + seconds + GRACE_S
        while (message := self._next(deadline - time.monotonic())) is not None:
            if message.get("event") == "answer" and not self._fits(message):
                return TOO_LARGE
            answer = _read(Answer, message, "answer")
            if answer is not None:
                return answer
        return None

    def test(self, file: TestFile, tests: Session) -> None:
        """Let the tests run in their sandbox, and pass their calls on to the work's."""
        work = self.request.work
        module = work.module or work.document.rpartition("/")[2].rpartition(".")[0]
        tests.send({"do": "test", "module": module, "file": file.model_dump(mode="json")})
        found: list[Tested] = []
        wait = START_S
        while (
            len(found) < MOST_TESTS and (message := tests.receive(wait + file.seconds + GRACE_S)) is not None
        ):
            wait = GRACE_S  # a call that hangs is noticed here first
            if message.get("event") == "tests done":
                break
            if message.get("event") == "remote":
                tests.send({"do": "remote", "body": self._remote(message.get("body"), file.seconds)})
            outcome = _read(Tested, {**message, "file": file.path}, "tested")
            if outcome is not None:
                found.append(outcome)
        else:
            ending = tests.close()
            if ending.end == "not run":
                raise SandboxUnavailable(ending.reason)
            reason = ending.reason or "The tests did not come to their end."
            found.append(Tested(file=file.path, name=file.path, state="not reached", message=reason))
        self.tests += found

    def _remote(self, body: object, seconds: float) -> object:
        """The work's answer to a call of the tests; `{"gone": true}` when there is nobody to answer."""
        if not self.gone:
            self.work.send({"do": "remote", "body": body, "seconds": seconds})
            deadline = time.monotonic() + seconds + GRACE_S
            while (message := self._next(deadline - time.monotonic())) is not None:
                if message.get("event") == "remote":
                    return message.get("body")
        return {"gone": True}

    def _fits(self, message: Mapping[str, Any]) -> bool:
        """Whether there is room for what a message holds."""
        size = parts(message, self.room)
        if size <= self.room:
            self.room -= size
            return True
        return False

    def _next(self, seconds: float) -> dict[str, Any] | None:
        message = self.work.receive(max(seconds, 0.0))
        self.gone = message is None
        return message

    def all_cells(self) -> tuple[Played, ...]:
        """Every code cell, also those that were not reached."""
        return tuple(
            self.cells.get(cell.number, Played(number=cell.number, state="not reached"))
            for cell in self.request.work.cells
        )


def _asking(expression: Expression) -> dict[str, Any]:
    return {"do": "ask", **expression.model_dump(mode="json")}


def parts(value: object, at_most: int) -> int:
    """How many parts a JSON value has, see MOST_PARTS; counts no further than `at_most`."""
    waiting, found = [value], 0
    while waiting and found <= at_most:
        value = waiting.pop()
        if isinstance(value, dict):
            found += OBJECT
            waiting += value.values()
        elif isinstance(value, list):
            found += len(value)
            waiting += (item for item in value if isinstance(item, dict | list))
    return found


def _read(kind: type[V], message: Mapping[str, Any], event: str) -> V | None:
    """The value in a message of that event; nothing when it has another shape."""
    if message.get("event") != event:
        return None
    try:
        return kind.model_validate({name: value for name, value in message.items() if name != "event"})
    except (ValidationError, RecursionError):
        return None


ENDS_BY_ITSELF: frozenset[End] = frozenset({"finished", "left", "memory", "output", "processes"})


def repeatable(execution: Execution) -> bool:
    """Whether the same request would give the same again; running out of time may be the machine's doing."""
    if execution.end not in ENDS_BY_ITSELF:
        return False
    parts: tuple[Answer | Played | Tested, ...] = (
        *execution.answers,
        *execution.variables.values(),
        *execution.cells,
        *execution.tests,
    )
    # tests that their sandbox did not reach may have run out of time there
    return all(part.state != "too long" for part in parts) and all(
        test.state != "not reached" for test in execution.tests
    )
