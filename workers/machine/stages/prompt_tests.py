"""What tests showed, as lines of the prompt, not yet defused: their words may be the student's."""

from __future__ import annotations

from collections.abc import Iterator

from grading.domain.model import TestOutcome
from workers.machine.sanitize import flat

MOST_FAILED = 12
"""Failing tests of one check that are told in full."""
_WIDEST = 400
"""Characters of one input, value or message."""


def counted(tests: tuple[TestOutcome, ...]) -> str:
    """`9 of 11 tests passed`, hidden ones counted by themselves."""
    parts = []
    for hidden, word in ((False, "test"), (True, "hidden test")):
        those = [test for test in tests if test.hidden is hidden]
        if those:
            passed = sum(test.passed for test in those)
            parts.append(f"{passed} of {len(those)} {word}{'' if len(those) == 1 else 's'} passed")
    return ", ".join(parts)


def failed(tests: tuple[TestOutcome, ...]) -> Iterator[str]:
    """A line for each failing test that is not hidden, with all that is known of it; the first twelve."""
    those = [test for test in tests if not test.passed and not test.hidden]
    for test in those[:MOST_FAILED]:
        known = {
            "input": test.input,
            "expected": test.expected,
            "result": test.got,
            "why": test.message,
        }
        said = "; ".join(
            f"{word}: {_short(text)}" for word, text in known.items() if text.strip() not in ("", test.name)
        )
        yield f"    failed: {' | '.join(filter(None, (_short(test.name), said))) or 'a test without details'}"
    if len(those) > MOST_FAILED:
        yield f"    and {len(those) - MOST_FAILED} more that failed, not listed here"


def _short(text: str) -> str:
    """One line; of a long one the beginning, with a count of the rest."""
    said = flat(text)
    if len(said) <= _WIDEST:
        return said
    return f"{said[:_WIDEST]}[… {len(said) - _WIDEST} characters left out …]"
