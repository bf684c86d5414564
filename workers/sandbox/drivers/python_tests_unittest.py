"""The tests of a file, by unittest."""

from __future__ import annotations

import functools
import unittest
from typing import Any

from python_common import TooLong
from python_remote_objects import WorkFault, WorkGone, WorkTimeout, why


class Result(unittest.TestResult):
    """Tells each test as it ends."""

    def __init__(self, tests: Any) -> None:
        super().__init__()
        self.tests = tests
        self.told = 0

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self.told = 0

    def _tell(self, test: Any, state: str, message: str = "") -> None:
        self.told += 1
        self.tests.say(name_of(test), state, message)

    def addSuccess(self, test: unittest.TestCase) -> None:
        if not self.told:
            self._tell(test, "passed")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self._tell(test, "skipped", reason)

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        self._tell(test, *why(err[1]))

    addError = addFailure

    def addExpectedFailure(self, test: unittest.TestCase, err: Any) -> None:
        self._tell(test, "passed")

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        self._tell(test, "failed", "it was expected to fail")

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:
        if err is None:
            self._tell(subtest, "passed")
        else:
            self._tell(subtest, *why(err[1]))


def name_of(test: Any) -> str:
    """`TestBasket.test_total (fruit='apple')`, without the module."""
    case = getattr(test, "test_case", test)
    method = getattr(case, "_testMethodName", None)
    if method is None:
        return str(test).partition(" ")[0]
    name = f"{type(case).__name__}.{method}"
    return f"{name} {test._subDescription()}" if case is not test else name


def limited(tests: Any, case: unittest.TestCase) -> None:
    """Lets the clock run from the test's first line to its last."""
    method = getattr(case, case._testMethodName)

    @functools.wraps(method)  # it carries what decorators wrote on it
    def run(*arguments: Any, **named: Any) -> Any:
        tests.begin()
        try:
            return method(*arguments, **named)
        except TooLong:
            raise TimeoutError(f"took longer than {tests.seconds:g} s") from None
        finally:
            tests.clock.stop()

    setattr(case, case._testMethodName, run)


def caught(kind: type) -> None:
    """Lets work that fails while a class is set up cost only that class; unittest expects Exceptions."""

    def guarded(function: Any) -> Any:
        @functools.wraps(function)
        def fixture(cls: type) -> None:
            try:
                function(cls)
            except (WorkFault, WorkGone, WorkTimeout) as error:
                raise RuntimeError(str(error)) from None

        return classmethod(fixture)

    for name in ("setUpClass", "tearDownClass"):
        own = kind.__dict__.get(name)
        if isinstance(own, classmethod):
            setattr(kind, name, guarded(own.__func__))


def run(tests: Any) -> None:
    """Every test of the file."""
    suite = unittest.defaultTestLoader.loadTestsFromModule(tests.module())
    todo: list[Any] = [suite]
    kinds: set[type] = set()
    while todo:
        part = todo.pop()
        if isinstance(part, unittest.TestSuite):
            todo.extend(part)
        elif type(part).__module__ != "unittest.loader":
            limited(tests, part)
            kinds.update(type(part).__mro__)
    for kind in kinds - set(unittest.TestCase.__mro__):
        caught(kind)
    if not suite.countTestCases():
        tests.say(tests.label(), "error", "the file has no tests")
    suite.run(Result(tests))
