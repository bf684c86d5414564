"""What an adversary tried against trials beyond the corpus of tests/hostile, and what must not work again."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from grading.documents import UploadedFile, read
from grading.evidence import collect
from grading.evidence.check_output import INDEX
from grading.evidence.compare import MAX_NODES, compare
from grading.evidence.compare_output import lines_of
from grading.evidence.lang_python import VALUE_MAGIC
from grading.evidence.numbers import MAX_DIGITS, number_of
from grading.evidence.scope import first_comments
from grading.model import Cell, Evidence
from grading.rubric import Check, Criterion, OutputEquals, Rubric, RunsClean
from grading.trials.model import Code, Expression, Limits, Request, Shape, TestFile, Trial, TrialLanguage, Work
from grading.trials.plan import make_plan
from grading.trials.ran import Ran
from grading.trials.settings import Checks
from tests.unit.evidence_samples import cell, notebook
from workers.checks.sandbox import open_sandbox
from workers.checks.toolbox import find_toolbox
from workers.checks.trial import MOST_PARTS, OBJECT, Talk, Trials, parts

LIMITS = Limits(seconds=20, cell_s=3, memory_mb=384)


@pytest.fixture(scope="module")
def trials() -> Trials:
    """The real sandbox."""
    return Trials(open_sandbox("bubblewrap"), lambda language: find_toolbox(language, Checks()))


def asked(
    trials: Trials, source: str, tests: str = "", expressions: Sequence[str] = (), language: TrialLanguage = "python"
) -> Trial:
    """The trial of a script with a file of tests and expressions."""
    ending = {"python": "py", "r": "R"}[language]
    cells = (Code(number=1, source=source),)
    files = (TestFile(path=f"tests/test_it.{ending}", source=tests, seconds=0.6),) if tests else ()
    request = Request(
        work=Work(document=f"basket.{ending}", module="basket", language=language, cells=cells),
        as_main=False,
        expressions=tuple(Expression(code=code) for code in expressions),
        tests=files,
        limits=LIMITS,
    )
    return trials.run(request)


def passed(trial: Trial) -> set[str]:
    """Names of the tests that passed."""
    return {test.name for test in trial.tests if test.state == "passed"}
