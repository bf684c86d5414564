"""The tests of a file, by pytest."""

from __future__ import annotations

from typing import Any

import pytest
from python_common import TooLong
from python_remote_objects import why


class Plugin:
    """Tells each test as it ends."""

    def __init__(self, tests: Any) -> None:
        self.tests = tests
        self.outcome: tuple[str, str] = ("passed", "")

    def pytest_collection_finish(self, session: Any) -> None:
        """The pages of the report are ours, pytest's own are thrown away."""

    def pytest_collectreport(self, report: Any) -> None:
        """A file that cannot be imported is an error."""
        if report.failed:
            text = str(getattr(report.longrepr, "longrepr", report.longrepr))
            errors = [line[1:].strip() for line in text.splitlines() if line.startswith("E")]
            self.tests.say(self.tests.label(), "error", errors[-1] if errors else text[-500:])

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item: Any) -> Any:
        """Lets the clock run from the test's first line to its last."""
        self.tests.begin()
        try:
            yield
        finally:
            self.tests.clock.stop()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_pyfunc_call(self, pyfuncitem: Any) -> Any:
        """The clock's ring ends the test, not pytest."""
        done = yield
        error = done.excinfo[1] if done.excinfo else None
        if isinstance(error, TooLong):
            done.force_exception(TimeoutError(f"took longer than {self.tests.seconds:g} s"))

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: Any, call: Any) -> Any:
        """Remembers the worst of set-up, test and tear-down, and tells it at the end."""
        report = (yield).get_result()
        if call.when == "setup":
            self.outcome = ("passed", "")
        if self.outcome[0] == "passed":
            self.outcome = self._of(report, call)
        if call.when == "teardown":
            self.tests.say(item.nodeid.partition("::")[2].replace("::", "."), *self.outcome)

    def _of(self, report: Any, call: Any) -> tuple[str, str]:
        if report.skipped:
            if hasattr(report, "wasxfail"):
                return "passed", ""
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
            return "skipped", str(reason)
        if report.passed:
            return "passed", ""
        if call.excinfo is None:
            return "failed", str(report.longrepr)
        error = call.excinfo.value
        if isinstance(error, pytest.fail.Exception):
            return "failed", str(error)
        state, message = why(error)
        return state, message


def run(tests: Any) -> None:
    """Every test of the file."""
    options = [
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:faulthandler",
        "-c",
        "/dev/null",
        "--rootdir",
        tests.folder,
    ]
    code = pytest.main([*options, tests.path], plugins=[Plugin(tests)])
    if code == pytest.ExitCode.NO_TESTS_COLLECTED:
        tests.say(tests.label(), "error", "the file has no tests")
