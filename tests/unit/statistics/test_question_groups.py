"""Groups of disputes: the cause is what the disputed submissions share and the others do not."""

from __future__ import annotations

import random

from grading.domain.evidence import CheckOutcome
from grading.domain.evidence import TestOutcome as Tested
from grading.statistics.question_causes import faults
from grading.statistics.question_groups import OTHER, Cause, CriterionCase, grouped

JOIN = frozenset({"left_join()"})


def case(
    number: int, *used: str, named: bool = False, disputed: bool = True, **more: object
) -> CriterionCase:
    present, absent = (JOIN, frozenset()) if named else (frozenset(), JOIN)
    levels = (("checks", 4.0 if named else 0.0), ("model", 4.0 - number % 3))
    return CriterionCase(
        f"w{number:02}",
        "join",
        levels,
        disputed,
        frozenset(used),
        present,
        absent,
        **more,  # type: ignore[arg-type]
    )


def test_what_all_use_explains_nothing() -> None:
    """Each prints, whatever function they join with."""
    named = [case(n, "print()", named=True, disputed=False) for n in range(10)]
    merged = [case(n, "print()", "merge()") for n in range(10, 15)]
    looped = [case(n, "print()", "for()", "match()") for n in range(15, 18)]
    unlike = [case(n, "print()", f"own_{n}()") for n in range(18, 21)]
    cases = [*named, *merged, *looped, *unlike]
    found = grouped(cases)
    assert [(one.cause, one.count) for one in found] == [
        (Cause("name", "left_join()", "merge()"), 5),
        (Cause("name", "left_join()", "match()"), 3),
        (OTHER, 3),
    ]
    assert found[0].works == ("w12", "w10", "w13", "w11", "w14"), "those furthest apart first"
    assert [(one.side, one.level, one.count) for one in found[0].sides] == [
        ("checks", 0.0, 5), ("model", 2.8, 5),
    ]  # fmt: skip
    random.Random(1).shuffle(cases)
    assert grouped(cases) == found


def test_a_check_that_others_miss_in_agreement_explains_nothing() -> None:
    rare = faults((CheckOutcome(check="c", label="total", earned=0, code="check.output_close.found"),))
    usual = faults((CheckOutcome(check="d", label="plot", earned=0.5, code="check.missing"),))
    agreed = [case(n, disputed=False, faults=usual) for n in range(8)]
    differing = [case(n, faults=usual | rare) for n in range(8, 12)]
    assert [(one.cause, one.count) for one in grouped([*agreed, *differing])] == [
        (Cause("value", "total"), 4),
    ]
    assert grouped(differing[:2]) == ()


def test_failing_tests_and_places_without_work_are_causes() -> None:
    tests = (Tested(name="adds", passed=True), Tested(name="empty  list", passed=False))
    found = faults(
        (
            CheckOutcome(check="t", label="tests", earned=0.5, tests=tests),
            CheckOutcome(check="n", label="notes", earned=0, code="check.nothing_added"),
            CheckOutcome(check="o", label="met", earned=1),
            CheckOutcome(check="i", label="cannot run", earned=0, weight=0),
        )
    )
    assert found == {
        Cause("check", "tests"), Cause("value", "tests", "empty list"),
        Cause("check", "notes"), Cause("missing", "notes"),
    }  # fmt: skip
