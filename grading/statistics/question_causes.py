"""What the checks of a criterion say about why it is judged differently, as causes of question_groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from grading.domain.document import Document
from grading.domain.evidence import CheckOutcome
from grading.statistics.question_groups import Cause

FULL = 1 - 1e-9
MOST_TESTS = 20
"""Failing tests of one check that are looked at."""
MOST_CHARS = 120
"""Of a label, or of a test's name."""
MISSING = frozenset(
    (
        "check.nothing_added", "check.no_code", "check.nothing_run", "check.no_file", "check.no_place",
        "check.nothing_to_read", "check.too_little", "check.runs_clean.nothing", "test.not_defined",
    )
)  # fmt: skip
"""Messages of checks that found nothing to look at."""
VALUES = ("check.output_matches.", "check.output_close.", "check.has_output.", "check.all_executed.", "test.")
"""How messages begin that are about outputs and values."""


def faults(evidence: Iterable[CheckOutcome]) -> frozenset[Cause]:
    """Checks that are not fully met, with their failing tests."""
    missed = (one for one in evidence if one.weight > 0 and one.earned < FULL)
    return frozenset(cause for one in missed for cause in _of_check(one))


def _of_check(outcome: CheckOutcome) -> Iterator[Cause]:
    label = _short(outcome.label or outcome.check)
    yield Cause("check", label)
    if outcome.code in MISSING:
        yield Cause("missing", label)
    elif outcome.code.startswith(VALUES):
        yield Cause("value", label)
    for test in [one for one in outcome.tests if not one.passed][:MOST_TESTS]:
        yield Cause("value", label, _short(test.name))


def foreign_language(documents: Iterable[Document], language: str) -> frozenset[Cause]:
    """Code in another language than the assignment's."""
    found = {one.language for one in documents for cell in one.cells if cell.kind == "code" and cell.added}
    return frozenset(Cause("language", language, one) for one in found if language and one != language)


def _short(text: str) -> str:
    return " ".join(text.split())[:MOST_CHARS]
