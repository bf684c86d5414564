"""How long a search may take: no estimate is below what is possible, and usual patterns stay cheap."""

from __future__ import annotations

import re

import pytest

from grading.domain.pattern_steps import search_steps

CODE = "\n".join(f"sales <- read_csv('file_{n}.csv') %>% filter(x  ==  {n})" for n in range(40))


@pytest.mark.parametrize(
    "pattern",
    [
        r"mean\s*\(",
        r"%>%\s*c\s*\(\s*1\s*,\s*7\s*\)",
        r"\bPart\s*1(?![\d.]*\d)|\b(?:Task|Question)\s*1\.\d",
        r"(?is)filter(?>.*?%>%)(?>.*?select)",
        r"read_csv\(.*\)",
        r"(\w+) <- \1|x{2,5}[^a-z\W]?",
    ],
)
def test_usual_patterns_are_cheap(pattern: str) -> None:
    assert len(CODE) < search_steps(pattern, [CODE]) < 2e8


@pytest.mark.parametrize("pattern", [r"(?s).*a.*b.*c", r"\S*\d\S*\d\S*\d\S*\d", r"(?:ab|a|b)*c"])
def test_ambiguous_patterns_are_dear(pattern: str) -> None:
    assert search_steps(pattern, ["abab1" * 500]) > 2e9


def test_the_steps_grow_with_the_runs_that_a_repeat_may_take() -> None:
    assert search_steps(r"\s*x", [" " * 100]) < 101 * 300
    assert search_steps(r"\s*\s*x", [" " * 100]) > 101 * 100 * 50
    assert search_steps(r".*.*x", ["ab\n" * 300]) < search_steps(r"(?s).*.*x", ["ab\n" * 300]) / 1000
    assert search_steps(r"\s*+\s*x", [" " * 100]) < 101 * 500
    assert search_steps(r"a", ["x" * 10] * 3) == 3 * search_steps("a", ["x" * 10])


def test_an_estimate_is_not_below_the_ways_there_are() -> None:
    """Counts each end that a repeat has by matching it in full, as a search that fails has to."""
    text = "aab" * 6
    for left, right in ((r"[ab]*", r"a*"), (r"\w{1,3}", r"[ab]+"), (r"(?:a|b)*", r"a?")):
        tried = sum(
            re.fullmatch(left, text[at:cut]) is not None and re.fullmatch(right, text[cut:end]) is not None
            for at in range(len(text))
            for cut in range(at, len(text) + 1)
            for end in range(cut, len(text) + 1)
        )
        assert search_steps(left + right + "c", [text]) >= tried
