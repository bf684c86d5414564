"""Deductions, caps and bonus: what rubrics may say, and the formula."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from grading.assignments.loader import read_files
from grading.checks import collect
from grading.checks.kinds.code import Uses
from grading.checks.kinds.outputs import OutputMatches
from grading.checks.kinds.prose import Words
from grading.checks.kinds.runs import RunsClean
from grading.checks.kinds.tests import Case, PassesTests
from grading.checks.visibility import for_student
from grading.documents import Limits
from grading.domain.errors import AssignmentError
from grading.domain.evidence import AdjustmentEvidence, CheckOutcome, Evidence
from grading.domain.jobs import Provenance, Result
from grading.domain.report import Adjusted, CriterionGrade, Report
from grading.domain.report_changes import Change
from grading.domain.round_states import RoundState
from grading.domain.rubric import Adjustment, Criterion, Rubric
from grading.execution.values import Execution, Played
from grading.scoring import changed, combine, counted, settled
from grading.scoring.adjustments import added_up, found_adjustments
from tests.unit.checks.samples import script
from tests.unit.execution.samples import collected
from workers.server.rubric_cache import UNSENT

CRITERIA = (
    Criterion(id="clean", title="Cleaning", points=20),
    Criterion(id="style", title="Style", points=10),
    Criterion(id="plots", title="Plots", points=10),
    Criterion(id="extra", title="Extra", points=5, bonus=True),
)


def adjustment(name: str = "pipes", checks: int = 1, **other: Any) -> Adjustment:
    unless = tuple(Words(at_least=1) for _ in range(checks))
    return Adjustment.model_validate({"id": name, "title": name.title(), "unless": unless, **other})


def rubric(*adjustments: Adjustment, at_most: float | None = None) -> Rubric:
    return Rubric(criteria=CRITERIA, adjustments=adjustments, bonus_at_most=at_most)


def seen(name: str, *earned: float | None) -> AdjustmentEvidence:
    """Outcomes of its checks; nothing for one that could not be run."""
    outcomes = [
        CheckOutcome(check=f"{n}", label="c", earned=e or 0.0, weight=0.0 if e is None else 1.0)
        for n, e in enumerate(earned)
    ]
    return AdjustmentEvidence(adjustment=name, outcomes=tuple(outcomes))


def report(made: Rubric, *evidence: AdjustmentEvidence, levels: Sequence[int] = (4, 4, 4, 4)) -> Report:
    judged = [{"criterion": c.id, "level": n} for c, n in zip(CRITERIA, levels, strict=True)]
    how = Provenance(machine="m", engine="e", model="qwen", uses_model=True)
    result = Result(
        run_id="r", round_id="r", stage="analysis", ok=True, output={"judgements": judged}, provenance=how
    )
    return combine(made, Evidence(added_lines=5, adjustments=evidence), {"analysis": result}, {})


def codes(made: Report) -> set[str]:
    return {flag.code for flag in made.flags if flag.hold}


def test_a_deduction_takes_a_share_of_the_maximum_of_its_criteria() -> None:
    made = report(
        rubric(adjustment(deduct=0.15, criteria=["clean"])), seen("pipes", 0.5), levels=(2, 4, 4, 0)
    )
    assert [one.points for one in made.adjustments] == [3.0]  # of 20, though 10 were earned
    assert (made.points, made.points_so_far, made.max_points) == (27.0, 27.0, 40.0)


def test_met_checks_take_nothing_and_a_cap_leaves_at_most_its_share() -> None:
    made = report(
        rubric(adjustment(deduct=0.2), adjustment("template", cap=0.2)),
        seen("pipes", 1.0),
        seen("template", 0.0),
    )
    assert [(one.applies, one.points) for one in made.adjustments] == [(False, 0.0), (True, 32.0)]
    assert made.points == 8.0 + 5.0  # bonus comes after the cap


@pytest.mark.parametrize(
    ("how", "earned", "taken"),
    [
        ({"deduct": 0.1, "each": True}, (0.0, 1.0, 0.5), 8.0),
        ({"deduct": 0.1, "each": True, "partly": True}, (0.0, 1.0, 0.5), 6.0),
        ({"deduct": 0.3, "partly": True}, (0.0, 1.0, 0.5), 6.0),
        ({"deduct": 0.3}, (1.0, 1.0, 0.5), 12.0),
        ({"deduct": 0.3, "at_least": 0.8}, (1.0, 1.0, 0.5), 0.0),
        ({"cap": 0.5, "at_least": 0.5}, (1.0, 0.0, 0.0), 20.0),
        ({"deduct": 0.6, "each": True}, (0.0, 0.0, 0.0), 40.0),  # not below zero
    ],
)
def test_each_partly_and_at_least(how: dict[str, Any], earned: tuple[float, ...], taken: float) -> None:
    made = report(rubric(adjustment(checks=3, **how)), seen("pipes", *earned), levels=(4, 4, 4, 0))
    assert (made.adjustments[0].points, made.points) == (taken, 40.0 - taken)


def test_what_could_not_be_run_takes_nothing_and_holds_the_grade() -> None:
    made = report(rubric(adjustment(deduct=0.2)), seen("pipes", None))
    assert (made.points, made.held, codes(made)) == (45.0, True, {"adjustment_undecided", "unsupported"})
    assert made.adjustments[0].undecided
    # the same where a round was prepared before its evidence had a place for it
    assert "adjustment_undecided" in codes(report(rubric(adjustment(deduct=0.2))))


def test_what_a_check_decides_alone_does_not_wait_for_another() -> None:
    made = report(rubric(adjustment(checks=2, deduct=0.2)), seen("pipes", 0.0, None))
    assert (made.points, "adjustment_undecided" in codes(made)) == (37.0, False)
    each = report(rubric(adjustment(checks=2, deduct=0.2, each=True)), seen("pipes", 0.0, None))
    assert (each.points, "adjustment_undecided" in codes(each)) == (37.0, True)
    # nothing could be taken where nothing was earned
    assert "adjustment_undecided" not in codes(
        report(rubric(adjustment(deduct=0.2)), seen("pipes", None), levels=(0, 0, 0, 0))
    )


def test_nested_adjustments_are_counted_from_the_inside() -> None:
    made = report(
        rubric(
            adjustment("whole", deduct=0.5),
            adjustment("both", cap=0.5, criteria=["clean", "style"]),
            adjustment("one", deduct=1.0, criteria=["style"]),
        ),
        *(seen(name, 0.0) for name in ("whole", "both", "one")),
        levels=(4, 4, 4, 0),
    )
    # 20 + 10 - 10, at most 15, with 10 more, less 20
    assert [one.points for one in made.adjustments] == [20.0, 5.0, 10.0]
    assert made.points == 5.0


def test_bonus_lifts_above_the_maximum_only_so_far() -> None:
    assert report(rubric()).points == 45.0
    capped = report(rubric(at_most=2.0))
    assert (capped.points, capped.bonus_lost) == (42.0, 3.0)
    assert report(rubric(at_most=0.0), levels=(4, 4, 2, 4)).points == 40.0  # makes up for what is lacking


def test_a_person_waives_and_applies_and_takes_that_back() -> None:
    made = report(rubric(adjustment(deduct=0.2)), seen("pipes", 0.0))
    waive = Change(id=1, kind="waive", target="pipes", reason="used |> instead", by="Ada")
    now = changed(made, [waive])
    assert (made.points, now.points) == (37.0, 45.0)
    assert now.adjustments[0].corrected is not None
    assert (now.adjustments[0].corrected.points, now.adjustments[0].corrected.by) == (8.0, "Ada")
    again = Change(id=2, kind="apply", target="pipes", reason="no", by="Ada")
    assert changed(made, [waive, again]).points == 37.0
    assert changed(made, [again, waive.model_copy(update={"id": 3})]).points == 45.0
    undecided = report(rubric(adjustment(checks=3, deduct=0.1, each=True)), seen("pipes", None, None, 1.0))
    assert changed(undecided, [again]).points == 33.0
    assert changed(made, []) == made


def test_what_a_person_adds_to_bonus_is_not_swallowed() -> None:
    made = report(rubric())
    up = Change(id=1, kind="adjust", target="total", points=1.0, reason="r")
    assert settled(made, [up]).final_points == 46.0
    assert counted(45.0, -2.0, 40.0, 0.5) == 21.5


@pytest.mark.parametrize(
    ("said", "what"),
    [
        ({"deduct": 0.1, "cap": 0.5}, "set either deduct or cap"),
        ({}, "set either deduct or cap"),
        ({"cap": 0.5, "each": True}, "each and partly can only be used with deduct"),
        ({"deduct": 0.1, "unless": []}, "at least 1 item"),
        ({"deduct": 1.5}, "less than or equal to 1"),
    ],
)
def test_an_adjustment_that_makes_no_sense_is_refused(said: dict[str, Any], what: str) -> None:
    with pytest.raises(ValidationError, match=what):
        adjustment(**said)


@pytest.mark.parametrize(
    ("adjustments", "what"),
    [
        ([{"criteria": ["nothing"], "deduct": 0.1}], "names no criterion of this rubric: nothing"),
        (
            [{"criteria": ["clean", "extra"], "deduct": 0.1}],
            "applies to bonus criteria and to other criteria",
        ),
        (
            [
                {"criteria": ["clean", "style"], "deduct": 0.1},
                {"criteria": ["plots", "style"], "deduct": 0.1},
            ],
            "share some of their criteria",
        ),
    ],
)
def test_adjustments_that_do_not_fit_the_criteria_are_refused(
    adjustments: list[dict[str, Any]], what: str
) -> None:
    with pytest.raises(ValidationError, match=what):
        rubric(*(adjustment(f"a{n}", **one) for n, one in enumerate(adjustments)))


def test_a_rubric_needs_something_that_is_no_bonus() -> None:
    with pytest.raises(ValidationError, match="not a bonus"):
        Rubric(criteria=CRITERIA[3:])
    with pytest.raises(ValidationError, match="needs a bonus criterion"):
        Rubric(criteria=CRITERIA[:3], bonus_at_most=1)
    with pytest.raises(ValidationError, match="twice: pipes"):
        rubric(adjustment(deduct=0.1), adjustment(deduct=0.1))


def test_rubrics_and_reports_without_adjustments_are_stored_as_before() -> None:
    plain = Rubric(criteria=CRITERIA[:1])
    assert set(plain.model_dump(mode="json")) == {"criteria", "equivalents"}
    assert "bonus" not in plain.model_dump(mode="json")["criteria"][0]
    assert "adjustments" not in Evidence().model_dump(mode="json")
    kept = report(Rubric(criteria=CRITERIA[:3]), levels=(1, 2, 3, 0)).model_dump(mode="json")
    assert not {"adjustments", "bonus_at_most"} & set(kept)
    assert "bonus" not in kept["criteria"][0]
    assert Report.model_validate(json.loads(json.dumps(kept))).points == 17.5


NAMES = ("clean", "style", "plots")
GROUPS = ((), ("clean",), ("style",), ("clean", "style"), ("plots",), ("extra",))
adjusted = st.builds(
    lambda group, share, cap, applies: Adjusted(
        adjustment="", title="", criteria=group, applies=applies,
        **({"cap": share} if cap else {"deduct": share, "at_worst": share}),
    ),
    st.sampled_from(GROUPS), st.floats(0, 1), st.booleans(), st.booleans(),
)  # fmt: skip
shares = st.lists(st.floats(0, 1), min_size=4, max_size=4)


def graded(of: Sequence[float]) -> list[CriterionGrade]:
    return [
        CriterionGrade(
            criterion=c.id, title=c.title, stage=c.stage, points=round(c.points * share, 2),
            max_points=c.points, level=0, highest=4, basis="model", bonus=c.bonus,
        )
        for c, share in zip(CRITERIA, of, strict=True)
    ]  # fmt: skip


def named(found: list[Adjusted]) -> list[Adjusted]:
    return [one.model_copy(update={"adjustment": f"{n}"}) for n, one in enumerate(found)]


@given(shares, st.lists(adjusted, max_size=6).map(named), st.none() | st.floats(0, 10))
def test_points_stay_between_zero_and_the_maximum_with_bonus_and_add_up(
    of: list[float], found: list[Adjusted], at_most: float | None
) -> None:
    grades = graded(of)
    made, total = added_up(grades, found, at_most)
    assert 0.0 <= total <= 40.0 + (5.0 if at_most is None else min(5.0, round(at_most, 2)))
    assert all(one.points >= 0.0 for one in made)
    kept = Report(
        status=RoundState.GRADED, criteria=tuple(grades), points=total, points_so_far=total, max_points=40,
        adjustments=made, bonus_at_most=at_most,
    )  # fmt: skip
    assert kept.bonus_lost >= 0.0
    assert kept.bonus_lost == 0.0 or at_most is not None
    concerned = {name: sum(one.points for one in made if one.criteria == (name,)) for name in NAMES}
    assert all((g.points or 0.0) >= round(concerned.get(g.criterion, 0.0), 2) for g in grades)


@given(shares, shares, st.lists(adjusted, max_size=6).map(named), st.none() | st.floats(0, 10))
def test_who_earns_more_never_gets_fewer_points(
    of: list[float], more: list[float], found: list[Adjusted], at_most: float | None
) -> None:
    higher = [max(pair) for pair in zip(of, more, strict=True)]
    assert added_up(graded(of), found, at_most)[1] <= added_up(graded(higher), found, at_most)[1]


@given(shares, st.lists(adjusted, min_size=1, max_size=6).map(named), st.none() | st.floats(0, 10), st.data())
def test_waiving_restores_what_would_be_without_it_and_order_does_not_matter(
    of: list[float], found: list[Adjusted], at_most: float | None, data: st.DataObject
) -> None:
    grades = graded(of)
    one = data.draw(st.sampled_from(found))
    without = [other for other in found if other is not one]
    total = added_up(grades, without, at_most)[1]
    assert added_up(grades, found, at_most)[1] <= total
    status: Any = {"status": RoundState.GRADED, "criteria": tuple(grades), "max_points": 40}
    base = Report(
        **status, points=0, points_so_far=0, adjustments=added_up(grades, found, at_most)[0],
        bonus_at_most=at_most,
    )  # fmt: skip
    assert changed(base, [Change(id=1, kind="waive", target=one.adjustment)]).points == total
    shuffled = data.draw(st.permutations(found))
    assert added_up(grades, shuffled, at_most)[1] == added_up(grades, found, at_most)[1]


@given(st.lists(st.none() | st.floats(0, 1), min_size=1, max_size=4), st.booleans(), st.booleans())
def test_the_more_is_met_the_less_is_taken_and_the_unknown_takes_nothing(
    earned: list[float | None], each: bool, partly: bool
) -> None:
    one = adjustment(checks=len(earned), deduct=0.3, each=each, partly=partly)

    def deducted(values: Sequence[float | None]) -> float:
        return (
            found_adjustments(rubric(one), Evidence(adjustments=(seen("pipes", *values),)))[0].deduct or 0.0
        )

    as_met = [1.0 if value is None else value for value in earned]
    assert deducted(earned) == pytest.approx(deducted(as_met))
    assert deducted([1.0] * len(earned)) == 0.0
    assert deducted(as_met) <= deducted([value / 2 for value in as_met]) + 1e-9


def _collected(unless: Any, source: str, runs: Any = None) -> AdjustmentEvidence:
    work = script(source, path="work.py", language="python")
    made = rubric(adjustment(deduct=0.2, unless=[unless]))
    if runs is None:
        return collect([work], made).adjustments[0]
    return collected(made, work, runs=runs).adjustments[0]


def test_the_checks_of_adjustments_are_run_like_those_of_criteria() -> None:
    assert [o.earned for o in _collected(Uses(all_of=("print",)), "x = 1\n").outcomes] == [0.0]
    assert [o.earned for o in _collected(Uses(all_of=("print",)), "print(1)\n").outcomes] == [1.0]


@pytest.mark.parametrize(
    "ended",
    [
        Execution(end="finished", cells=(Played(number=1, state="too long"),)),
        Execution(end="too long", reason="It took longer than 60 s"),
        Execution(end="not run", reason="This server has no sandbox."),
    ],
)
def test_a_run_that_was_stopped_or_not_made_decides_no_adjustment(ended: Execution) -> None:
    found = _collected(RunsClean(), "while True: pass\n", lambda key, request: ended)
    assert [o.weight for o in found.outcomes] == [0.0]
    failed = Execution(end="finished", cells=(Played(number=1, state="failed", error="NameError: x"),))
    decided = _collected(RunsClean(), "x\n", lambda key, request: failed)
    assert [(o.earned, o.weight) for o in decided.outcomes] == [(0.0, 1.0)]


def test_a_mistake_in_an_adjustment_names_its_key() -> None:
    head = b'slug = "s"\ntitle = "T"\n[[criteria]]\nid = "a"\ntitle = "A"\npoints = 1\n'
    head += b'[[adjustments]]\nid = "p"\ntitle = "P"\n'
    for text, said in (
        (
            b'dedukt = 1\n[[adjustments.unless]]\nkind = "no_errors"',
            "adjustments[0].dedukt: is not a known key",
        ),
        (
            b'cap = 0.5\n[[adjustments.unless]]\nkind = "usess"',
            "adjustments[0].unless[0].kind: must be one of",
        ),
        (b'cap = 0.5\n[[adjustments.unless]]\nkind = "uses"', "adjustments[0].unless[0]: checks nothing"),
        (
            b'cap = 0.5\nwhere = "("\n[[adjustments.unless]]\nkind = "no_todo"',
            "adjustments[0].where: the regular",
        ),
        (b'[[adjustments.unless]]\nkind = "no_todo"', "adjustments[0]: set either deduct or cap"),
    ):
        with pytest.raises(AssignmentError) as caught:
            read_files({"assignment.toml": head + text}, Limits())
        assert str(caught.value).startswith(said)
    good = b'cap = 0.5\n[[adjustments.unless]]\nkind = "no_errors"'
    assert read_files({"assignment.toml": head + good}, Limits()).rubric.adjustments[0].cap == 0.5
    beside = {
        "assignment.toml": b'slug = "s"\nbonus_at_most = 1\ntitle = "T"\nrubric = "r.json"',
        "r.json": b"{}",
    }
    with pytest.raises(AssignmentError, match="move them to that file"):
        read_files(beside, Limits())


def test_machines_are_sent_nothing_of_adjustments_and_bonus() -> None:
    made = rubric(adjustment(deduct=0.2), at_most=1.0)
    sent = made.model_dump(mode="json", exclude=UNSENT)
    plain = Rubric(criteria=CRITERIA[:3]).model_dump(mode="json", exclude=UNSENT)
    assert set(sent) == set(plain) == {"criteria", "equivalents"}
    assert set(sent["criteria"][3]) == set(plain["criteria"][0])


def test_outputs_of_a_run_that_was_stopped_decide_nothing() -> None:
    stopped = Execution(end="too long", reason="It took longer than 60 s")
    found = _collected(
        OutputMatches(all_of=("total",)), "while True: pass\nprint('total')\n", lambda key, request: stopped
    )
    assert [o.weight for o in found.outcomes] == [0.0]


def test_students_see_of_hidden_tests_in_a_deduction_only_how_many_there_are() -> None:
    check = PassesTests(cases=(Case(expression="f(31337)", expected="1", hidden=True),))
    work = script("def f(x):\n    return x\n", path="work.py", language="python")
    found = collected(rubric(adjustment(deduct=0.2, unless=[check])), work)
    assert "31337" in found.model_dump_json()
    assert "31337" not in for_student(found).model_dump_json()
    made = report(rubric(adjustment(deduct=0.2, unless=[check])), found.adjustments[0])
    assert made.adjustments[0].points == 8.0
    assert "31337" in made.model_dump_json()
    assert "31337" not in for_student(made).model_dump_json()


def test_a_rubric_file_holds_them_too_and_their_number_is_bounded() -> None:
    said = rubric(adjustment(deduct=0.2), at_most=2.0).model_dump(mode="json")
    manifest = b'slug = "s"\ntitle = "T"\nrubric = "r.json"'
    made = read_files({"assignment.toml": manifest, "r.json": json.dumps(said).encode()}, Limits())
    assert made.rubric == rubric(adjustment(deduct=0.2), at_most=2.0)
    with pytest.raises(ValidationError, match="at most 200"):
        rubric(*(adjustment(f"a{n}", deduct=0.1) for n in range(201)))
