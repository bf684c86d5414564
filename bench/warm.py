"""Processor time of a submission with 15 tests in the sandbox, beside the work in an interpreter that is up.

Beside it stands the same driver in a bare process, which has done the same work before it counts: no box, no
start. Both are measured in turns, each with all processes that took part: the one that talks, the interpreter
with its forks, bubblewrap, and the fork server's share.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from grading.config.sandbox import Limits
from grading.execution.model import Code, Expression, Request, TrialLanguage, Work
from workers.sandbox.backends.base import Box, Sandbox
from workers.sandbox.backends.bubblewrap import Bubblewrap
from workers.sandbox.backends.fork_servers import ForkServer
from workers.sandbox.fork_server_choice import prepared
from workers.sandbox.session import Talk, Trials
from workers.sandbox.toolbox import Toolbox

TESTS = 15
READY_S = 60.0
WARM_UP = 2
"""So often a bare interpreter does the work before: R compiles a function at its second call, and a fork
server has compiled the driver. The kernel tells the time of other processes in whole ticks, four numbers
of them: of a process that has just begun, with four zeros, it would keep back half a tick in each.
"""
LIMITS = Limits(seconds=120)
_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Task:
    """Work with tests."""

    name: str
    language: TrialLanguage
    imports: str
    source: str
    test: str
    """With `{n}` for the number of the test."""

    def request(self) -> Request:
        """All of it, as a submission."""
        return _request(self.language, f"{self.imports}\n{self.source}", self.test)


def _request(language: TrialLanguage, source: str, test: str) -> Request:
    work = Work(document="work", language=language, cells=(Code(number=1, source=source),))
    tests = tuple(Expression(code=test.replace("{n}", str(n))) for n in range(TESTS) if test)
    return Request(work=work, expressions=tests, limits=LIMITS)


TASKS = (
    Task(
        "Python",
        "python",
        "import math",
        "def f(n):\n    return [math.sqrt(x) for x in range(n * 100)]",
        "f({n})[-3:]",
    ),
    Task(
        "Python, pandas",
        "python",
        "import pandas as pd",
        "d = pd.DataFrame({'a': range(1000), 'b': [x % 7 for x in range(1000)]})\n"
        "def f(n):\n    return d[d.a > n].groupby('b').a.mean()",
        "f({n})",
    ),
    Task(
        "R",
        "r",
        "library(stats)",
        "f <- function(n) sapply(seq_len(n * 100), sqrt)",
        "tail(f({n} + 1), 3)",
    ),
    Task(
        "R, dplyr",
        "r",
        "library(dplyr)",
        "d <- data.frame(a = 1:1000, b = 1:1000 %% 7)\n"
        "f <- function(n) d %>% filter(a > n) %>% group_by(b) %>% summarise(m = mean(a))",
        "as.data.frame(f({n}))",
    ),
)


@dataclass(frozen=True)
class Warm:
    """Milliseconds of processor time of one submission."""

    task: str
    runs: int
    warm_ms: float
    sandbox_ms: float
    ratio: float

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def measure(
    task: Task, sandbox: Bubblewrap, bare: Sandbox, toolbox: Callable[[Any], Toolbox], runs: int
) -> Warm:
    """Run the work on both sides, in turns."""
    request = task.request()
    server = _server(sandbox, toolbox(task.language), request)
    trials = Trials(sandbox, toolbox)
    trials.run(request)
    warm, boxed = 0.0, 0.0
    for _ in range(runs):
        warm += _warm(task, bare, toolbox(task.language))
        before = _own() + _of(_below(server.pid))
        trial = trials.run(request)
        boxed += _own() + _of(_below(server.pid)) - before
        if trial.end != "finished" or any(answer.state != "value" for answer in trial.answers):
            raise RuntimeError(f"{task.name} did not come to its end: {trial.end} {trial.reason}")
    return Warm(
        task.name, runs, round(1e3 * warm / runs, 1), round(1e3 * boxed / runs, 1), round(boxed / warm, 2)
    )


def _server(sandbox: Bubblewrap, tools: Toolbox, request: Request) -> ForkServer:
    """The fork server for it, when it is up."""
    wanted = prepared(tools, request, "work")
    until = time.monotonic() + READY_S
    while wanted is not None and time.monotonic() < until:
        if (found := sandbox.fork_servers.find(wanted)) is not None:
            return found
        time.sleep(0.05)
    raise RuntimeError("there is no fork server here: it needs bubblewrap and, for R, libR.so")


def _warm(task: Task, bare: Sandbox, tools: Toolbox) -> float:
    """Seconds of processor time of the work in an interpreter that has done it before."""
    with bare.open(Box(tools.work_argv, tools.mounts, tools.environ, LIMITS)) as session:
        root = getattr(session, "root_pid", None)
        assert isinstance(root, int)
        before = 0.0
        for _ in range(1 + WARM_UP):  # the last time counts
            before = _own() + _of(root)
            talk = Talk(task.request(), session)
            if not (talk.play() and talk.ask()):
                raise RuntimeError(f"{task.name} ended before its time")
        return _own() + _of(root) - before


def _own() -> float:
    """Of this process and those it has waited for."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in both)


def _of(pid: int) -> float:
    """Of a process and those it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / _TICK


def _below(pid: int) -> int:
    """The child of bubblewrap's own process."""
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
