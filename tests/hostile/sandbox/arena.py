"""Where the hostile programs meet the real sandbox: what must not be reached lies around it as bait.

The programs are harmless by themselves: each does no more than it takes to be noticed, and those that end or
change what is not theirs look first whether they are in a sandbox.
"""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from grading.checks import collect
from grading.checks.kinds.tests import Case, PassesTests
from grading.config.settings import Limits, SandboxSettings
from grading.documents import UploadedFile, read, set_apart
from grading.domain.document import Document
from grading.domain.evidence import Evidence
from grading.domain.rubric import Criterion, Rubric
from grading.execution.path_repair import beside
from grading.execution.plan import Plan, make_plan
from grading.execution.results import Ran
from grading.execution.values import CodeLanguage, Execution, Request
from tests.hostile.sandbox import bait
from tests.hostile.sandbox.bait import Bait
from tests.support.fork_servers import warm
from workers.sandbox.backends.base import Backend
from workers.sandbox.plan_runner import Shelf
from workers.sandbox.request_runner import Executor
from workers.sandbox.runtimes import find_runtime

PROGRAMS = Path(__file__).parent / "programs"
SECONDS, PATIENT_S = 12.0, 60.0
"""Wall time of a program that may be cut, and of one whose end or points a late computer must not change."""
SOON_S, ENOUGH_S = 0.7, 5.0
"""Wall time of a case: where nothing is earned, and where a late computer must not take anything away."""
GRACE_S = 10.0
"""So long after its limit all is over."""
EXPECTED = 40213579
"""What a hidden test expects; nothing in a sandbox of the work says so."""
PRICES = b"price\n3\n4\n"


@dataclass(frozen=True)
class Bound:
    """A share that is expected: exactly, or at most."""

    share: float
    at_most: bool = False

    def holds(self, share: float) -> bool:
        """Whether a share is as expected."""
        return share <= self.share + 1e-9 if self.at_most else abs(share - self.share) < 1e-9


@dataclass(frozen=True)
class Program:
    """A submission of the corpus, and what its header expects."""

    name: str
    files: Mapping[str, str]
    """`basket.py` (or .ipynb, .R) and what lies beside it."""
    tries: str
    ends: tuple[str, ...]
    cases: Bound
    tests: Bound | None
    """Nothing: it is not run with files of tests, which take another sandbox."""
    limit_s: float | None
    """Wall time, where its header says so."""
    suite: str = "test_basket.*"
    """The files of tests."""

    @property
    def earns(self) -> bool:
        """Whether it is to have so much and no less."""
        return any(bound.share > 0 and not bound.at_most for bound in (self.cases, self.tests) if bound)

    @property
    def seconds(self) -> float:
        """Its wall time."""
        must_end = self.earns or "too long" not in self.ends
        return self.limit_s or (PATIENT_S if must_end else SECONDS)

    @property
    def language(self) -> CodeLanguage:
        """`python` or `r`."""
        return "r" if self.name.startswith("r_") else "python"


def corpus() -> dict[str, Program]:
    """All programs by name: a file, or a folder that holds `basket.*`."""
    return {path.stem: read_program(path) for path in sorted(PROGRAMS.iterdir())}


def read_program(path: Path) -> Program:
    """One of them; its header says what is expected."""
    if path.is_dir():
        files = {f.relative_to(path).as_posix(): f.read_text() for f in path.rglob("*") if f.is_file()}
    else:
        files = {f"basket{path.suffix}": path.read_text()}
    document = next(text for name, text in sorted(files.items()) if name.startswith("basket."))
    header = dict(
        re.findall(r"^[ \"]*# (Tries|End|Cases|Tests|Suite|Seconds): (.+?)(?:\\n\",?)?$", document, re.M)
    )
    return Program(
        name=path.stem,
        files=files,
        tries=header["Tries"],
        ends=tuple(header["End"].split(" | ")),
        cases=_bound(header["Cases"]),
        tests=None if header["Tests"] == "-" else _bound(header["Tests"]),
        limit_s=float(header["Seconds"]) if "Seconds" in header else None,
        suite="test_pytest.py" if header.get("Suite") == "pytest" else "test_basket.*",
    )


def _bound(text: str) -> Bound:
    return Bound(float(text.removeprefix("<= ")), text.startswith("<= "))


# --- the assignment -----------------------------------------------------------------------------------

_LISTS = {"python": "[{}]", "r": "c({})"}
_FOUR = {"python": "__import__('statistics').mean([3, 5])", "r": "mean(c(3, 5))"}
"""Expected values may need modules, of which a submission may have its own."""
_CASES = (("", "0"), ("5", "5"), ("1, 2, 3", "6"))
_HIDDEN = (("10, -4", "6"), ("0.5, 0.25", "0.75"), (f"{EXPECTED - 79}, 79", str(EXPECTED)))
_HUNDRED = {"python": "range(1, 101)", "r": "1:100"}
TESTS = {
    "tests/test_basket.py": """\
import unittest

import basket


class TestTotal(unittest.TestCase):
    def test_nothing(self):
        self.assertEqual(basket.total([]), 0)

    def test_one(self):
        self.assertEqual(basket.total([5]), 5)

    def test_negative(self):
        self.assertEqual(basket.total([10, -4]), 6)

    def test_fractions(self):
        self.assertAlmostEqual(basket.total([0.5, 0.25]), 0.75)

    def test_many(self):
        self.assertTrue(abs(basket.total([7] * 30) - 210) < 1e-6)
""",
    "tests/test_pytest.py": """\
import pytest
from basket import total


@pytest.mark.parametrize(("xs", "value"), [([], 0), ([5], 5), ([10, -4], 6)])
def test_total(xs, value):
    assert total(xs) == value


def test_fractions():
    assert total([0.5, 0.25]) == 0.75


def test_many():
    assert abs(total([7] * 30) - 210) < 1e-6
""",
    "tests/test_basket.R": """\
test_that("nothing", expect_equal(total(c()), 0))
test_that("one", expect_equal(total(5), 5))
test_that("negative", expect_equal(total(c(10, -4)), 6))
test_that("fractions", expect_equal(total(c(0.5, 0.25)), 0.75))
test_that("many", expect_true(abs(total(rep(7, 30)) - 210) < 1e-6))
""",
}


def rubric_for(program: Program) -> Rubric:
    """`total(xs)` is to be written; half of the cases are hidden."""
    listed = _LISTS[program.language].format
    cases = [
        Case(expression=f"total({listed(xs)})", expected=value, hidden=hidden)
        for given, hidden in ((_CASES, False), (_HIDDEN, True))
        for xs, value in given
    ]
    cases.append(Case(expression=f"total({listed('2, 2')})", expected=_FOUR[program.language]))
    cases.append(Case(expression=f"total({_HUNDRED[program.language]})", expected="5050", hidden=True))
    seconds = ENOUGH_S if program.earns else SOON_S
    checks = [PassesTests(id="cases", cases=tuple(cases), files="basket.*", seconds=seconds)]
    if program.tests is not None:
        checks.append(PassesTests(id="tests", tests=program.suite, files="basket.*", seconds=seconds))
    return Rubric(criteria=(Criterion(id="behaviour", title="Behaviour", points=10, checks=tuple(checks)),))


# --- a run --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """What became of a program."""

    program: Program
    work: Execution
    evidence: Evidence
    seconds: float
    """Wall time of its own execution."""
    reached: tuple[str, ...]
    """What came out of its sandboxes that must not: secrets, and its own words that it got through."""

    def share(self, check: str) -> float:
        """What it earned for a check."""
        outcomes = self.evidence.criteria[0].outcomes
        return next(o.earned for o in outcomes if o.check == check)


@dataclass
class Arena:
    """A sandbox with bait around it. Any number of threads may run programs."""

    sandbox: Backend
    bait: Bait
    shelf: Shelf
    cell_s: float
    _kept: dict[str, Execution] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, program: Program) -> Outcome:
        """Submit it, run it and collect what it earned."""
        documents, rubric, plan = self._planned(program)
        executions = {
            key: self._kept_execution(r) for key, r in plan.requests.items() if not key.startswith("work:")
        }
        [(key, request)] = [item for item in plan.requests.items() if item[0].startswith("work:")]
        began = time.monotonic()
        work = self._executor.run(request, self.shelf.mounts(request.files))
        seconds = time.monotonic() - began
        evidence = collect(documents, rubric, ran=Ran(plan, {**executions, key: work}))
        return Outcome(program, work, evidence, seconds, self.bait.reached_in(work))

    def warm(self, program: Program) -> None:
        """Wait until the fork servers are ready from which such programs and their tests run."""
        for request in self._planned(program)[2].requests.values():
            warm(self._executor, request)

    def _planned(self, program: Program) -> tuple[tuple[Document, ...], Rubric, Plan]:
        """What is submitted, what is asked for, and what is to be run."""
        files = {name: self.bait.filled(text).encode() for name, text in program.files.items()}
        uploads = [UploadedFile(name, text) for name, text in files.items() if name.startswith("basket.")]
        documents = set_apart(read(uploads).documents, ())
        rubric = rubric_for(program)
        others = {n: self._shelve(text) for n, text in files.items() if not n.startswith("basket.")}
        plan = make_plan(
            documents,
            rubric,
            (),
            files=beside(others, {"data/prices.csv": self._shelve(PRICES)}),
            tests=TESTS,
            limits=limits(program.seconds, max(self.cell_s, ENOUGH_S if program.earns else 0)),
        )
        return documents, rubric, plan

    @property
    def _executor(self) -> Executor:
        return Executor(self.sandbox, lambda language: find_runtime(language, SandboxSettings()))

    def _kept_execution(self, request: Request) -> Execution:
        """The instructor's own executions are the same for all."""
        key = request.model_dump_json(exclude={"limits"})
        with self._lock:
            if key not in self._kept:
                patient = request.model_copy(update={"limits": limits(PATIENT_S, ENOUGH_S)})
                execution = self._executor.run(patient, self.shelf.mounts(request.files))
                assert execution.end == "finished", execution
                self._kept[key] = execution
            return self._kept[key]

    def _shelve(self, content: bytes) -> str:
        name = hashlib.sha256(content).hexdigest()
        self.shelf.put(name, content)
        return name


def limits(seconds: float, cell_s: float) -> Limits:
    """Small ones, so that a test takes no longer than it must."""
    return Limits(seconds=seconds, cell_s=cell_s, memory_mb=256, processes=48, disk_mb=32, output_kb=64)


@contextmanager
def arena(sandbox: Backend, cell_s: float = 1.0) -> Iterator[Arena]:
    """An arena with new bait, where a cell has so many seconds."""
    with bait.laid() as laid, Shelf() as shelf:
        yield Arena(sandbox, laid, shelf, cell_s)
