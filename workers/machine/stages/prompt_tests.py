"""What tests showed, as lines of the prompt. Their words may be the student's, so all of it is defused."""

from __future__ import annotations

from collections.abc import Iterator

from grading.jobs import Job
from grading.model import CheckOutcome, TestOutcome
from workers.machine.stages.fit import Piece
from workers.machine.stages.text import defuse

MOST_FAILED = 12
"""Failing tests of one check that are told in full."""
_WIDEST = 400
"""Characters of one input, value or message."""


def pieces_of_tests(job: Job) -> Iterator[Piece]:
    """One piece for each check with tests: how many passed, then those that failed with all that is known.

    The evidence of a job holds only what the student may see of a test. Of other stages'
    checks only the numbers are told.
    """
    found = list(_tested(job))
    if found:
        yield Piece("heading", ("", "== Tests, run by the school =="))
    for stage, criterion, outcome in found:
        lines = [f"{criterion}, {_flat(outcome.label or outcome.check)}: {counted(outcome.tests)}"]
        if stage == job.stage:
            lines += _failed(outcome.tests)
        yield Piece("output", tuple(defuse(line, job.nonce) for line in lines))


def counted(tests: tuple[TestOutcome, ...]) -> str:
    """`9 of 11 tests passed`, hidden ones counted by themselves."""
    parts = []
    for hidden, word in ((False, "test"), (True, "hidden test")):
        those = [test for test in tests if test.hidden is hidden]
        if those:
            passed = sum(test.passed for test in those)
            parts.append(f"{passed} of {len(those)} {word}{'' if len(those) == 1 else 's'} passed")
    return ", ".join(parts)


def _tested(job: Job) -> Iterator[tuple[str, str, CheckOutcome]]:
    for criterion in job.rubric.criteria:
        found = job.evidence.of(criterion.id)
        for outcome in found.outcomes if found is not None else ():
            if outcome.tests:
                yield criterion.stage, criterion.id, outcome


def _failed(tests: tuple[TestOutcome, ...]) -> Iterator[str]:
    failed = [test for test in tests if not test.passed and not test.hidden]
    for test in failed[:MOST_FAILED]:
        known = {
            "input": test.input,
            "expected": test.expected,
            "result": test.got,
            "why": test.message,
        }
        said = "; ".join(
            f"{word}: {_short(text)}" for word, text in known.items() if text.strip() not in ("", test.name)
        )
        yield f"  - failed: {' | '.join(filter(None, (_short(test.name), said))) or 'a test without details'}"
    if len(failed) > MOST_FAILED:
        yield f"  - and {len(failed) - MOST_FAILED} more that failed, not listed here"


def _flat(text: str) -> str:
    return " ".join(text.split())


def _short(text: str) -> str:
    """One line; of a long one the beginning, with a count of the rest."""
    flat = _flat(text)
    if len(flat) <= _WIDEST:
        return flat
    return f"{flat[:_WIDEST]}[… {len(flat) - _WIDEST} characters left out …]"
