"""Checks that count: `at least 10 pipes`, `at most two loops`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grading.checks.evaluate import label_of
from grading.checks.kinds.counts import Count
from grading.domain.check import Check
from grading.domain.errors import AssignmentError
from grading.domain.rubric import Criterion, Rubric
from grading.domain.rubric_errors import check_rubric
from tests.unit.checks.samples import cell, notebook, outcome, script

PIPES = "a <- x %>%\n  filter(y > 1) %>%\n  select(y)\nb <- a |> nrow()"


def test_count_of_an_operator() -> None:
    work = notebook(cell(PIPES))
    found = outcome(Count(names=("%>%",), at_least=4), work)
    assert (found.earned, found.message) == (0.5, "2 uses of %>%; at least 4 are asked for")
    assert outcome(Count(names=("%>%", "|>"), at_least=3), work).earned == 1
    assert outcome(Count(names=("%>%",), at_least=3), work, equivalents={"%>%": ("|>",)}).earned == 1
    assert outcome(Count(names=("%>%", "%>%"), at_least=3), work).earned == pytest.approx(2 / 3)


def test_count_sees_the_students_lines_only() -> None:
    work = notebook(cell(PIPES, added=[4]))
    assert outcome(Count(names=("%>%",), at_least=1), work).earned == 0
    assert outcome(Count(names=("|>",), at_least=1), work).earned == 1


def test_more_than_at_most_earns_nothing() -> None:
    work = script("for i in x:\n    while i:\n        i -= 1\n", path="a.py", language="python")
    assert outcome(Count(of="loops", at_most=2), work).earned == 1
    found = outcome(Count(of="loops", at_most=1), work)
    assert (found.earned, found.message) == (0.0, "2 loops; at most 1 is allowed")
    assert outcome(Count(names=("print",), at_most=0), work).earned == 1


@pytest.mark.parametrize(
    ("language", "path", "source", "loops", "conditions"),
    [
        ("r", "a.R", "for (i in x) if (i) f(i)\nrepeat { break }\nwhile (FALSE) {}", 3, 1),
        (
            "java",
            "A.java",
            "class A { void f() { for (int i : x) {} do {} while (a); if (a) {} switch (a) {} } }",
            2,
            2,
        ),
        ("javascript", "a.js", "for (const a of b) { if (a) f(a) }\nwhile (x) {}", 2, 1),
    ],
)
def test_loops_and_conditions(language: str, path: str, source: str, loops: int, conditions: int) -> None:
    work = script(source, path=path, language=language)
    assert outcome(Count(of="loops", at_least=loops, at_most=loops), work).earned == 1
    assert outcome(Count(of="conditions", at_least=conditions, at_most=conditions), work).earned == 1


@given(st.integers(0, 12), st.integers(1, 12))
def test_the_share_is_the_part_of_what_is_asked(there: int, asked: int) -> None:
    work = notebook(cell("\n".join(["x <- 1", *["y <- f(x)"] * there])))
    found = outcome(Count(names=("f",), at_least=asked), work)
    assert found.earned == pytest.approx(min(1.0, there / asked))


@pytest.mark.parametrize(
    ("check", "label"),
    [
        (Count(names=("%>%",), at_least=10), "at least 10 uses of %>%"),
        (Count(of="loops", at_most=1), "at most 1 loop"),
        (Count(of="loops", at_least=1, at_most=3), "at least 1 and at most 3 loops"),
    ],
)
def test_what_a_count_is_called(check: Check, label: str) -> None:
    assert label_of(check) == label


@pytest.mark.parametrize(
    ("check", "sentence"),
    [
        (Count(at_least=2), "criteria[0].checks[0]: checks nothing; set names or of"),
        (
            Count(names=("f",), of="loops", at_least=1),
            "criteria[0].checks[0].of: cannot be used together with names",
        ),
        (Count(names=("f",)), "criteria[0].checks[0].at_least: is missing; set at_least, at_most or both"),
        (Count(names=("f",), at_least=3, at_most=2), "criteria[0].checks[0].at_most: is less than at_least"),
        (
            Count(names=("f",), base="A", at_least=3),
            "criteria[0].checks[0].base: can only be used when subclasses are counted",
        ),
        (Count(names=("f",), at_least=3, part="(a+)+"), "criteria[0].checks[0].part: "),
    ],
)
def test_a_count_that_asks_for_nothing_is_refused(check: Check, sentence: str) -> None:
    rubric = Rubric(criteria=(Criterion(id="a", title="A", points=1, checks=(check,)),))
    with pytest.raises(AssignmentError) as caught:
        check_rubric(rubric)
    assert caught.value.message.startswith(sentence)
