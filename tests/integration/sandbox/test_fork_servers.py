"""Runs that a fork server forks into their sandboxes: as shut off and as new as those that are started."""

from __future__ import annotations

import gc
import importlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from grading.config.settings import Limits, SandboxSettings
from grading.execution.values import Code, CodeLanguage, Execution, Expression, Request, TestFile, Work
from workers.sandbox.backends import fork_servers
from workers.sandbox.backends.base import SandboxSpec
from workers.sandbox.backends.bubblewrap import Bubblewrap
from workers.sandbox.backends.bwrap_process import Held
from workers.sandbox.request_runner import Executor, Kind, packages, prepared
from workers.sandbox.runtimes import find_runtime
from workers.sandbox.runtimes.base import DRIVERS

pytestmark = pytest.mark.usefixtures("one_box_at_a_time")
LIMITS = Limits(seconds=20, cell_s=5, memory_mb=256, processes=24, disk_mb=8)


def tools(language: CodeLanguage) -> Any:
    return find_runtime(language, SandboxSettings())


def asked(
    source: str, *codes: str, language: CodeLanguage = "python", tests: tuple[TestFile, ...] = ()
) -> Request:
    cells = (Code(number=1, source=source),)
    work = Work(document=f"w.{language}", language=language, cells=cells)
    return Request(
        work=work, expressions=tuple(Expression(code=code) for code in codes), tests=tests, limits=LIMITS
    )


class Sandboxes:
    """A sandbox whose runs are forked."""

    def __init__(self) -> None:
        self.sandbox = Bubblewrap()
        assert self.sandbox.problem() == ""
        self.executor = Executor(self.sandbox, tools)

    def server(self, request: Request, kind: Kind = "work") -> fork_servers.ForkServer:
        """The fork server of a request's work or tests, as soon as it is ready."""
        wanted = prepared(tools(request.work.language), request, kind)
        assert wanted is not None
        until = time.monotonic() + 30
        while (found := self.sandbox.fork_servers.find(wanted)) is None:
            assert time.monotonic() < until, "no fork server came up"
            time.sleep(0.01)
        return found

    def forked(self, request: Request) -> Execution:
        """Run it by a fork, certainly."""
        server = self.server(request)
        before = server.used
        execution = self.executor.run(request)
        assert server.used > before
        return execution


@pytest.fixture(scope="module")
def sandboxes() -> Iterator[Sandboxes]:
    found = Sandboxes()
    yield found
    found.sandbox.fork_servers.close()


def printed(execution: Execution) -> str:
    assert execution.cells[0].state == "ran", execution
    return "".join(output.text for output in execution.cells[0].outputs)


# --- shut off as much as a program that is started -------------------------------------------------------

PROBE = """
import json, os, resource, socket
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines())
found = {name: status[name] for name in (
    "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Groups", "Threads", "SigIgn")}
found["users"] = len({*status["Uid"].split(), *status["Gid"].split()}), os.getuid() > 0
found["map"] = open("/proc/self/uid_map").read().split()
found["limits"] = [resource.getrlimit(n) for n in range(16)]
found["files"] = {place: sorted(os.listdir(place)) for place in ("/", "/box", "/dev", "/etc", "/tmp")}
found["mounts"] = sorted(line.split()[1:4] for line in open("/proc/mounts"))
found["open"] = sorted(os.listdir("/proc/self/fd"))[:4]
found["environ"] = dict(os.environ), os.getcwd(), socket.gethostname(), os.umask(0)
found["net"] = open("/proc/net/dev").read().count(":")
pids = [n for n in os.listdir("/proc") if n.isdigit() and int(n) != os.getpid()]
found["parents"] = [n for n in pids if "forkserver" in open(f"/proc/{n}/cmdline").read()]
found["oom"] = open("/proc/self/oom_score_adj").read()
found["random"] = hash("text")
print(json.dumps(found))
"""


def test_a_fork_is_held_as_a_started_program_is(sandboxes: Sandboxes):
    started = json.loads(printed(Executor(Bubblewrap(), tools).run(asked(PROBE))))
    forked = json.loads(printed(sandboxes.forked(asked(PROBE))))
    assert forked == started
    assert forked["CapEff"] == forked["CapBnd"] == "0000000000000000"
    assert (forked["NoNewPrivs"], forked["Seccomp"]) == ("1", "2")
    assert forked["net"] == 1
    assert forked["parents"] == []


def test_a_fork_cannot_leave_its_box_or_look_into_others(sandboxes: Sandboxes):
    code = """
        import ctypes, os
        libc = ctypes.CDLL(None, use_errno=True)
        tries = {"ptrace": (16, 1, 0, 0), "setns": (0, 0), "unshare": (0x20000,), "chroot": (b"/tmp",),
                 "mount": (b"x", b"/tmp", b"tmpfs", 0, 0), "process_vm_readv": (1, 0, 0, 0, 0, 0)}
        print([name for name, given in tries.items() if getattr(libc, name)(*given) != -1])
        for path in ("/proc/1/mem", "/proc/1/environ", "/proc/1/root/box", "/proc/sys/kernel"):
            try: print(path, len(open(path, "rb").read(8)))
            except OSError: pass
        for path in ("/proc/self/exe", "/etc/passwd", "/grader/drivers/python_submission.py"):
            try: open(path, "r+b"); print("can write", path)
            except OSError: pass
    """
    request = asked(textwrap.dedent(code))
    # an ordinary user's sandboxes are all of that user, and the first process says only LANG
    seen = "" if os.geteuid() == 0 else "/proc/1/environ 8\n"
    started = Executor(Bubblewrap(), tools).run(request)
    assert printed(sandboxes.forked(request)) == printed(started) == f"[]\n{seen}"


def test_a_fork_cannot_leave_before_its_box_is_made(sandboxes: Sandboxes, monkeypatch: pytest.MonkeyPatch):
    """Nor look at the first process while that still has the rights with which it makes the box."""
    places, rights = fork_servers._places, []

    def watched(held: Held) -> list[int]:
        found = places(held)
        rights.extend(re.findall(r"CapPrm:\t(\w+)", Path(f"/proc/{held.root_pid}/status").read_text()))
        return found

    monkeypatch.setattr(fork_servers, "_places", watched)
    for _ in range(12):
        sandboxes.forked(asked(""))
    assert len(rights) == 12
    assert os.geteuid() == 0 or {*rights} == {"0" * 16}  # root's keeps them and cannot be looked at


# --- new as a program that is started --------------------------------------------------------------------

SPOILS = {
    "its memory and modules": "import builtins, os, sys, json, random\n"
    "builtins.len = None; sys.modules['math'] = None; json.spoilt = 1; os.environ['SPOILT'] = 'x'\n"
    "random.seed(1)\nopen('/tmp/left', 'w').write('x'); open('/box/left', 'w').write('x')",
    "its exit": "import os\nos._exit(7)",
    "its parents": "import os, signal\nfor n in (0, 1, 2, os.getppid(), -1):\n"
    "    try: os.kill(n, signal.SIGKILL)\n    except OSError: pass",
    "its descriptors": "import os\nos.closerange(0, 4096)",
    "a fork bomb": "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
    "all of its disk": "with open('/tmp/full', 'wb') as file:\n    while True: file.write(bytes(1 << 20))",
    "processes that stay": "import os, time\nif os.fork() == 0:\n    os.setsid()\n"
    "    if os.fork() == 0: time.sleep(600)\n    os._exit(0)",
    "all of its memory": "x = []\nwhile True: x.append(bytes(10 << 20))",
}
CLEAN = """
import builtins, json, math, os, sys
print(len("abc"), hasattr(json, "spoilt"), os.environ.get("SPOILT"), os.listdir("/tmp"), os.listdir("/box"))
print(sorted(n for n in os.listdir("/proc") if n.isdigit() and int(n) not in (1, os.getpid())))
"""


@pytest.mark.parametrize("what", SPOILS)
def test_nothing_of_a_run_reaches_the_next_or_the_server(sandboxes: Sandboxes, what: str):
    server = sandboxes.server(asked(CLEAN))
    sandboxes.executor.run(asked(SPOILS[what], "1 + 1"))
    after = sandboxes.forked(asked(CLEAN, "1 + 1"))
    assert printed(after) == "3 False None [] []\n[]\n"
    assert after.answers[0].value is not None
    assert sandboxes.server(asked(CLEAN)) is server
    assert not server.ended


def test_random_numbers_differ_from_run_to_run(sandboxes: Sandboxes):
    request = asked("import random\nimport numpy as np\nprint(random.random(), np.random.random())")
    first, second = (printed(sandboxes.forked(request)).split() for _ in range(2))
    assert not {*first} & {*second}


def test_two_runs_at_once_do_not_see_each_other(sandboxes: Sandboxes):
    request = asked("x = 1")
    sandboxes.server(request)
    with sandboxes.sandbox.open(_spec(request)) as one, sandboxes.sandbox.open(_spec(request)) as other:
        for session, number in ((one, 1), (other, 2)):
            source = f"open('/tmp/of_{number}', 'w').close()\nx = {number}"
            work = asked(source).work.model_dump(mode="json")
            session.send({"do": "play", "work": work, "as_main": True, "cell_s": 5, "output_kb": 64})
            while (message := session.receive(10)) is not None and message["event"] != "played":
                pass
        for session, number in ((one, 1), (other, 2)):
            code = "[x, __import__('os').listdir('/tmp'), __import__('os').getuid()]"
            session.send({"do": "ask", "code": code, "seconds": 5})
            answer = session.receive(10)
            assert answer is not None
            x, files, _ = answer["value"]["items"]
            assert (x["text"], [item["text"] for item in files["items"]]) == (str(number), [f"of_{number}"])


def _spec(request: Request) -> Any:
    found = tools("python")
    return SandboxSpec(found.work_argv, found.mounts, found.environ, LIMITS, prepared(found, request, "work"))


# --- servers that end, fail or are too many --------------------------------------------------------------


def test_a_server_that_was_killed_costs_no_run_and_another_comes(sandboxes: Sandboxes):
    request = asked("print('here')")
    killed = sandboxes.server(request)
    os.kill(int(_children(killed)), signal.SIGKILL)
    for _ in range(3):
        assert printed(sandboxes.executor.run(request)) == "here\n"
    assert sandboxes.server(request) is not killed


def _children(server: fork_servers.ForkServer) -> str:
    pid = server.pid
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return file.read().split()[0]


def test_where_nothing_can_be_forked_programs_are_started(
    sandboxes: Sandboxes, monkeypatch: pytest.MonkeyPatch
):
    other, request = Sandboxes(), asked("print('here')")
    other.server(request)

    def refused(*_: object) -> None:
        raise fork_servers.CannotFork("setns: Operation not permitted")

    with monkeypatch.context() as context:
        context.setattr(fork_servers, "_places", refused)
        for _ in range(fork_servers.FAILURES - 1):
            assert printed(other.executor.run(request)) == "here\n"
    other.forked(request)  # a failure now and then means nothing
    monkeypatch.setattr(fork_servers, "_places", refused)
    for _ in range(fork_servers.FAILURES):
        assert printed(other.executor.run(request)) == "here\n"
    monkeypatch.undo()
    wanted = prepared(tools("python"), request, "work")
    assert wanted is not None
    assert other.sandbox.fork_servers.find(wanted) is None
    other.sandbox.fork_servers.close()


def test_no_more_servers_than_allowed_and_those_in_use_stay(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fork_servers, "MOST", 1)
    here = Sandboxes()
    first, second = asked("x = 1"), asked("import numpy")
    server = here.server(first)
    wanted = prepared(tools("python"), second, "work")
    assert wanted is not None
    assert [here.sandbox.fork_servers.find(wanted) for _ in range(5)] == [None] * 5
    assert here.server(first) is server
    server.used -= fork_servers.KEEP_S + 1
    assert here.server(second) is not server
    assert server.ended
    here.sandbox.fork_servers.close()


def test_servers_end_with_their_sandbox():
    here = Sandboxes()
    server = here.server(asked("x = 1"))
    del here
    gc.collect()
    assert server.ended


def test_a_server_holds_no_more_after_many_runs(sandboxes: Sandboxes):
    request = asked("x = list(range(100_000))")
    told = Path("/proc", _children(sandboxes.server(request)), "status")

    def status(name: str) -> int:
        return int(told.read_text().split(f"{name}:")[1].split()[0])

    for _ in range(3):
        sandboxes.forked(request)
    before = status("RssAnon")
    for _ in range(33):
        sandboxes.forked(request)
    assert status("RssAnon") - before < 512  # KiB of its own memory
    assert status("RssAnon") < 150 << 10
    assert status("FDSize") == 64  # room for descriptors, which doubles when it is full


def test_a_server_without_work_ends(sandboxes: Sandboxes, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(DRIVERS))
    driver = importlib.import_module("python_forkserver")
    monkeypatch.setattr(driver, "IDLE_MS", 20)
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, its:
        server = driver.ForkServer(its, lambda: None)
        server.serve()  # nobody asks, and it comes back
        server.runs[-1] = object()
        end = threading.Timer(0.2, ours.close)
        began = time.monotonic()
        end.start()
        server.serve()  # with a run under way it waits until nobody can ask
        assert time.monotonic() - began >= 0.2
        end.join()


def test_only_what_the_code_names_is_loaded():
    assert packages(asked("import numpy as np, os\nfrom json import loads"), "work") == {"numpy"}
    assert packages(asked("x = 'import pandas'"), "work") == frozenset()
    r = asked("library(dplyr); x <- stringr::str_trim('a'); y <- 'library'", language="r")
    assert packages(r, "work") == {"dplyr", "stringr"}
    assert packages(r, "tests") == {"testthat"}
    assert {"ggplot2", "dplyr"} < packages(asked("library(tidyverse)", language="r"), "work")


# --- R -----------------------------------------------------------------------------------------------------

ATTACHES = """
library(dplyr)
print(search())
print(c(interactive(), dir.exists(tempdir()), exists(".Random.seed"), nrow(filter(cars, speed > 20))))
print(sort(ls())); print(options()[c("warn", "width")]); print(commandArgs()); print(getwd())
print(Sys.getenv()[setdiff(names(Sys.getenv()), c("R_SESSION_TMPDIR", "R_PAPERSIZE_USER"))])
f <- function(x) stop("no such day")
f(1)
"""


def printed_lines(execution: Execution) -> list[str]:
    return "".join(output.text for output in execution.cells[0].outputs).splitlines()


def test_r_that_is_forked_prints_what_a_new_one_does(sandboxes: Sandboxes):
    request = asked(ATTACHES, "1 + 1", language="r")
    started = Executor(Bubblewrap(), tools).run(request)
    forked = sandboxes.forked(request)
    assert printed_lines(forked) == printed_lines(started)
    assert (forked.cells[0].error, forked.cells[0].line) == (started.cells[0].error, started.cells[0].line)
    assert forked.answers == started.answers


def test_nothing_of_a_run_of_r_reaches_the_next(sandboxes: Sandboxes):
    clean = "print(c(ls(all.names = TRUE), list.files('/box'), list.files(tempdir()), Sys.getenv('SPOILT')))"
    spoils = (
        "x <- 1; set.seed(1); Sys.setenv(SPOILT = 'x'); file.create('/box/x', file.path(tempdir(), 'x'))\n"
        "assignInNamespace('sd', function(...) 0, 'stats'); print(runif(1))",
        "tools::pskill(Sys.getpid(), 11)",
        "system('sleep 600 &'); x <- numeric(1e9)",
    )
    for spoil in spoils:
        sandboxes.executor.run(asked(spoil, language="r"))
        after = sandboxes.forked(asked(f"{clean}\nsd(c(1, 3)) > 1", "runif(1)", language="r"))
        assert printed(after) == '[1] "until" ""     \n[1] TRUE\n'  # the driver's clock, and no variable
    first, second = (sandboxes.forked(asked("print(runif(1))", language="r")) for _ in range(2))
    assert printed(first) != printed(second)


def test_tests_of_r_run_in_a_fork_of_their_own(sandboxes: Sandboxes):
    source = "test_that('adds', { expect_equal(f(1), 2) })\ntest_that('fails', { expect_equal(f(1), 3) })"
    request = asked("f <- function(x) x + 1", language="r", tests=(TestFile(path="test_w.R", source=source),))
    server = sandboxes.server(request, "tests")
    for _ in range(2):
        before = server.used
        execution = sandboxes.forked(request)
        assert server.used > before
        assert [test.state for test in execution.tests] == ["passed", "failed"]
        assert "f(1) not equal to 3" in execution.tests[1].message


def test_testthat_looks_for_no_package_at_each_expectation(sandboxes: Sandboxes):
    """It did, in the folders above, unless an edition is named; that took longer than most tests."""
    source = """
        seen <- new.env()
        seen$count <- 0
        trace("find_edition", bquote(assign("count", get("count", .(seen)) + 1, .(seen))),
              where = asNamespace("testthat"), print = FALSE)
        for (n in 1:15) test_that(paste("adds", n), { expect_equal(f(n), n + 1); expect_true(f(n) > n) })
        test_that("looks nowhere", { expect_equal(seen$count, 0) })
        test_that("is counted", { testthat:::find_edition("."); expect_equal(seen$count, 1) })
    """
    test = TestFile(path="test_w.R", source=textwrap.dedent(source))
    execution = sandboxes.executor.run(asked("f <- function(x) x + 1", language="r", tests=(test,)))
    found = {one.name: (one.state, one.message) for one in execution.tests}
    assert found["looks nowhere"] == found["is counted"] == ("passed", "")
    assert len(found) == 17


# --- an ordinary user --------------------------------------------------------------------------------------

ORDINARY = 65534


def as_ordinary_user() -> list[str]:
    """What stands before a command that nobody runs, who sees our Python even in a folder that is closed."""
    base = Path(sys.base_prefix).resolve()
    opened: list[str] = []
    closed = [parent for parent in reversed(base.parents) if not parent.stat().st_mode & 0o001]
    if closed:
        inner = [one for one in reversed(base.parents) if one.is_relative_to(closed[0])]
        opened = ["--perms", "0755", "--tmpfs", str(closed[0])]
        opened += [word for one in inner[1:] for word in ("--perms", "0755", "--dir", str(one))]
        opened += ["--ro-bind", str(base), str(base)]
    user = [f"--reuid={ORDINARY}", f"--regid={ORDINARY}", "--clear-groups"]
    return ["bwrap", "--dev-bind", "/", "/", *opened, "--cap-add", "ALL", "--", "setpriv", *user, "--"]


@pytest.mark.skipif(os.geteuid() != 0, reason="all tests of this file ran as an ordinary user")
@pytest.mark.parametrize(
    "which",
    [
        "held_as or cannot_leave or was_killed",
        *(pytest.param(n, marks=pytest.mark.soak) for n in ("not _r_", "_r_")),
    ],
)
def test_all_of_it_holds_for_an_ordinary_user(which: str):
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))  # pytest's own folders are closed to others
    try:
        os.chown(folder, ORDINARY, ORDINARY)
        tests = [sys.executable, "-B", "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", __file__]
        tests += ["-k", f"({which}) and not ordinary"]
        done = subprocess.run(
            [*as_ordinary_user(), *tests, f"--basetemp={folder}/tests"],
            cwd=Path(__file__).parents[3],
            env={**os.environ, "HOME": str(folder), "TMPDIR": str(folder)},
            capture_output=True,
            timeout=120,
            text=True,
        )
    finally:
        shutil.rmtree(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout
