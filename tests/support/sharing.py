"""Several processes test: forks of the one that imported and collected all tests and hands out whole files.

The processes of pytest-xdist would each import and collect them again. Elsewhere than on Linux, where much
of a system must not be used after a fork, they do; what they say of themselves to tests is said here, too.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import tempfile
import traceback
import uuid
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import groupby
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import pytest

from tests.support import ordering

SUPPORTED = sys.platform == "linux"
PREFIX, LOCK = f"grader-tests-{os.getuid()}-", "lock"
Shares = Sequence[Sequence[pytest.Item]]
"""The tests of each file."""


def take_over(config: pytest.Config) -> None:
    """Have `-n` of pytest-xdist fork, where that can be."""
    wanted = config.getoption("numprocesses", 0)
    if SUPPORTED and wanted and not config.option.collectonly and not config.option.usepdb:
        config.option.numprocesses = 0
        config.pluginmanager.register(Sharing(wanted if isinstance(wanted, int) else ordering.processes()))


@dataclass
class Worker:
    """A process that tests, as the one sees it that hands out."""

    pid: int
    channel: Connection
    given: deque[pytest.Item] = field(default_factory=deque)
    """What it was given and has not reported."""


@dataclass(frozen=True, eq=False)
class Sharing:
    """Runs the tests in so many processes; a plugin of pytest."""

    processes: int

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Fork, hand out and report; pytest itself refuses what could not be collected."""
        if session.testsfailed:
            return None
        os.environ["PYTEST_XDIST_TESTRUNUID"] = uuid.uuid4().hex
        shares = [[*items] for _, items in groupby(session.items, ordering.file_of)]
        with kept_if_failed(session) as folder:
            workers: list[Worker] = []
            try:
                for number in range(min(self.processes, len(shares))):
                    workers.append(_forked(session, shares, folder / f"gw{number}", workers))
                _hand_out(session, shares, {worker.channel: worker for worker in workers})
            finally:
                for worker in workers:
                    worker.channel.close()
                for worker in workers:
                    os.waitpid(worker.pid, 0)
        return True


@contextmanager
def kept_if_failed(session: pytest.Session) -> Iterator[Path]:
    """A folder for the data of all processes; where tests failed, it stays until the next run of tests."""
    root = Path(os.environ.get("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir()))
    for left in root.glob(f"{PREFIX}*"):
        with (left / LOCK).open("a") as lock:
            if _is_free(lock.fileno()):
                shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=root))
    with (folder / LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
        if not session.testsfailed:
            shutil.rmtree(folder, ignore_errors=True)


def _is_free(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


# --- the process that hands out -----------------------------------------------------------------------


def _hand_out(session: pytest.Session, shares: Shares, workers: dict[Any, Worker]) -> None:
    """Give each process a file when it asks, and pass on what it reports, until none lives."""
    numbers = iter(range(len(shares)))
    while workers:
        for channel in wait([*workers]):
            worker = workers[channel]
            try:
                kind, value = worker.channel.recv()
            except (EOFError, ConnectionResetError):
                del workers[channel]
                kind, value = "ended", None
            if kind == "asks":
                number = next(numbers, None)
                worker.given.extend(() if number is None else shares[number])
                worker.channel.send(number)
            else:
                _pass_on(session, worker, kind, value)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)


def _pass_on(session: pytest.Session, worker: Worker, kind: str, value: Any) -> None:
    """Tell pytest's other plugins what a process said of a test, or that it says nothing any more."""
    hook = session.config.hook
    if kind == "reports":
        for data in value:
            report = hook.pytest_report_from_serializable(config=session.config, data=data)
            hook.pytest_runtest_logreport(report=report)
        worker.given.popleft()
    elif kind == "warning":
        text, place = value
        message = warnings.WarningMessage(UserWarning(text), UserWarning, *place)
        location = (*place, "")
        hook.pytest_warning_recorded.call_historic(
            kwargs={"warning_message": message, "when": "runtest", "nodeid": "", "location": location}
        )
    elif kind == "error":
        raise session.Interrupted(f"a process that tests failed:\n{value}")
    elif worker.given:
        _blame(session, worker.given[0])


def _blame(session: pytest.Session, item: pytest.Item) -> None:
    """Fail the test that a process was at when it ended before its time, and end the run."""
    said = "the process that ran this test ended; it may have been killed, for example for want of memory"
    report = pytest.TestReport(item.nodeid, item.location, {}, "failed", said, "call")
    session.config.hook.pytest_runtest_logreport(report=report)
    session.shouldstop = said


# --- a process that tests -----------------------------------------------------------------------------


def _forked(session: pytest.Session, shares: Shares, folder: Path, others: Sequence[Worker]) -> Worker:
    """A process that asks for files, tests and reports until there are no more."""
    here, there = Pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        there.close()
        return Worker(pid, here)
    try:
        # or the end of the process that hands out would not be seen
        for channel in (here, *(other.channel for other in others)):
            channel.close()
        _become_a_process_of_its_own(session.config, folder)
        _test(session, shares, there)
    finally:
        with suppress(BrokenPipeError):  # where the one that hands out has ended
            if sys.exc_info()[0]:
                there.send(("error", traceback.format_exc()))
        os._exit(0)  # whatever happens: all that called this goes on in the other process


def _become_a_process_of_its_own(config: pytest.Config, folder: Path) -> None:
    """With its own name, folder and captured output, and nothing to say on the terminal."""
    os.environ["PYTEST_XDIST_WORKER"] = folder.name
    config.option.basetemp = str(folder)
    config.pluginmanager.getplugin("tmpdir").pytest_configure(config)
    config.pluginmanager.unregister(name="terminalreporter")
    nowhere = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    config.pluginmanager.register(Silent(config, nowhere), "terminalreporter")
    if config.option.capture == "fd":
        # what is imported may keep these streams, so they stay, and write to files of this process
        capture = config.pluginmanager.getplugin("capturemanager")
        capture.resume_global_capture()
        for stream in (sys.stdout, sys.stderr):
            with tempfile.TemporaryFile() as own:
                os.dup2(own.fileno(), stream.fileno())
        capture.suspend_global_capture()


class Silent(pytest.TerminalReporter):
    """For plugins that write to the terminal; what is to be said there, the process that hands out says."""

    pytest_runtest_logstart = pytest_runtest_logreport = pytest_warning_recorded = None  # type: ignore[assignment]


def _test(session: pytest.Session, shares: Shares, channel: Connection) -> None:
    """What was handed out; a test knows the next one, to leave it what both use, and the last knows that."""
    session.config.pluginmanager.register(Reporter(session.config, channel))
    last: pytest.Item | None = None
    try:
        for item in _given(shares, channel):
            if last is not None:
                session.config.hook.pytest_runtest_protocol(item=last, nextitem=item)
            last = item
        if last is not None:
            session.config.hook.pytest_runtest_protocol(item=last, nextitem=None)
    finally:
        # what is still set up where it was interrupted
        session.config.pluginmanager.getplugin("runner").pytest_sessionfinish(session)


def _given(shares: Shares, channel: Connection) -> Iterator[pytest.Item]:
    """Asks for a file whenever none of the last one is left."""
    while True:
        channel.send(("asks", None))
        number = channel.recv()
        if number is None:
            return
        yield from shares[number]


@dataclass(frozen=True, eq=False)
class Reporter:
    """Sends what became of each test; a plugin of pytest."""

    config: pytest.Config
    channel: Connection
    reports: list[dict[str, Any]] = field(default_factory=list)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One of set-up, call and tear-down."""
        data = self.config.hook.pytest_report_to_serializable(config=self.config, report=report)
        self.reports.append(data)

    def pytest_runtest_logfinish(self) -> None:
        """All of one test at once."""
        self.channel.send(("reports", self.reports))
        self.reports.clear()

    def pytest_warning_recorded(self, warning_message: warnings.WarningMessage) -> None:
        """One that is no error."""
        text = f"{warning_message.category.__name__}: {warning_message.message}"
        self.channel.send(("warning", (text, (warning_message.filename, warning_message.lineno))))
