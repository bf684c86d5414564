"""Every value of a rubric of the older autograder is translated or told: nothing is dropped in silence."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grading.assignments.legacy_import import read_legacy_rubric
from grading.assignments.legacy_import.checks import Names, check_of
from grading.assignments.legacy_import.json_reader import Keys, percent
from grading.checks.kinds.code import CodeMatches, Defines, Uses
from grading.domain.errors import AssignmentError
from grading.domain.patterns import matches
from tests.unit.assignments.test_legacy_rubric import source, works

PLANTED = "planted_here"


def everything() -> dict[str, Any]:
    """A file with all the tables that are known, and some that are not."""
    own = source()
    running = own["rubric_elements"]["running"]
    running["deductions"] |= {"no_pipes": "No pipe = 20% deduction", "data_loss": "Lost rows = 15% deduction"}
    running["execution_requirements"] = {"cells_must_be_run": True}
    own["rubric_elements"]["reflection"]["scoring_rules"] = {"no_answer": "0 points"}
    return own | {
        "score_validation": {
            "rules": {
                "pipe_operator_requirement": {
                    "minimum_usage": 3,
                    "action": "If < 3, deduct 15% from running",
                },
                "tidiness": {"threshold": 0.5, "action": "a stern look"},
            }
        },
        "template_detection": {"detection_rules": {"key_indicators": ["str_trim("], "minimum_indicators": 1}},
        "bonus_opportunities": {"maps": {"points": 2, "description": "Draws a map"}},
        "common_issues": {"haste": {"indicators": ["no comments"], "penalty": "5%"}},
    }


def tables(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of all objects in a file."""
    yield path
    for key, inner in value.items():
        if isinstance(inner, dict):
            yield from tables(inner, (*path, key))


@given(st.sampled_from(sorted(tables(everything()))), st.sampled_from(["a text", 7, True, ["x"], {"y": "z"}]))
def test_a_planted_key_is_told_wherever_it_stands(path: tuple[str, ...], value: Any) -> None:
    own = deepcopy(everything())
    table = own
    for key in path:
        table = table[key]
    table[PLANTED] = value
    assert PLANTED in said_of(own)


def said_of(own: dict[str, Any]) -> str:
    """What an instructor gets to read: the rubric and the report, or the error."""
    try:
        rubric, notes = read_legacy_rubric(own)
    except AssignmentError as error:
        return str(error)
    return "\n".join((*notes, rubric.model_dump_json()))


def test_what_is_left_is_named_with_what_to_do() -> None:
    _, notes = read_legacy_rubric(everything())
    said = "\n".join(notes)
    assert "Not taken: common_issues (haste.indicators, haste.penalty). It speaks to whoever grades" in said
    assert "Not taken: rubric_elements.running.execution_requirements (cells_must_be_run). Nothing" in said
    assert "running.deductions.data_loss (“Lost rows = 15% deduction”): no check can see this" in said
    assert "score_validation.tidiness (“. a stern look”)" in said
    assert "There is no solution" in said


def test_deductions_bonus_and_demands_become_adjustments() -> None:
    rubric, _ = read_legacy_rubric(everything())
    found = {one.id: one for one in rubric.adjustments}
    assert (found["no_pipes"].deduct, found["no_pipes"].criteria) == (0.2, ("running",))
    count = found["pipe_operator_requirement"]
    assert (count.deduct, count.criteria, count.unless[0].model_dump()["at_least"]) == (0.15, ("running",), 3)
    bonus = next(one for one in rubric.criteria if one.bonus)
    assert (bonus.id, bonus.points, bonus.description) == ("maps", 2, "Draws a map")


def test_a_file_of_yet_another_form_is_refused_by_its_key() -> None:
    with pytest.raises(AssignmentError, match=r"^rubric_categories: this format of rubrics is not supported"):
        read_legacy_rubric({"rubric_categories": {"a": {"points": 1}}})


@pytest.mark.parametrize(
    ("string", "check"),
    [
        ("select(", Uses(all_of=("select",))),
        ("head()", Uses(all_of=("head",))),
        ("read_csv", Uses(all_of=("read_csv",))),
        ("starts_with", Uses(all_of=("starts_with",))),
        ("transactions <-", Defines(all_of=("transactions",))),
        ("Profit =", Defines(all_of=("Profit",))),
        ("quarterly", Defines(all_of=("quarterly",))),
        ("row_total", Defines(all_of=("row_total",))),
        ("&", Uses(all_of=("&",))),
        ("%in%", Uses(all_of=("%in%",))),
        ("%>%", Uses(any_of=("%>%", "|>"))),
        (
            "filter.*%>%.*select",
            CodeMatches(all_of=("(?s)filter(?>.*?%>%)(?>.*?select)",), label="has filter.*%>%.*select"),
        ),
        ("group_by.*,.*", CodeMatches(all_of=("(?s)group_by(?>.*?,)",), label="has group_by.*,.*")),
        ("-Id", CodeMatches(any_of=(r"\-\s*Id",), label="has -Id")),
    ],
)
def test_search_strings_become_what_they_mean(string: str, check: object) -> None:
    assert check_of(string, Names(made=frozenset({"quarterly"}))) == check


def test_patterns_take_little_time_on_code_written_against_them() -> None:
    check = check_of("filter.*%>%.*select", Names())
    assert isinstance(check, CodeMatches)
    started = time.process_time()
    assert matches(check.all_of[0], "filter%>%" * 2_200) == []
    assert matches(check.all_of[0], "x %>% filter(a) %>%\n  select(b)") == [(1, 2)]
    assert time.process_time() - started < 5  # ten times as long with patterns that try all ways


def test_a_word_is_a_function_where_the_solution_calls_it() -> None:
    own = {
        "max_points": 1,
        "required_sections": {"part1_a": {"points": 1, "verification": ["tidy_up", "flow"]}},
    }
    rubric, notes = read_legacy_rubric(
        {"rubric_elements": {"a": own}}, works("# Part 1: A\nflow <- tidy_up(x)", "")
    )
    assert rubric.criteria[0].checks[:2] == (Uses(all_of=("tidy_up",)), Defines(all_of=("flow",)))
    assert notes == ()


def test_what_the_solution_lacks_is_not_asked_for_and_told() -> None:
    own = {"max_points": 1, "required_sections": {"part1_a": {"points": 1, "verification": ["f(", "g("]}}}
    rubric, notes = read_legacy_rubric({"rubric_elements": {"a": own}}, works("# Part 1: A\nf(1)", ""))
    assert rubric.criteria[0].checks[0] == Uses(all_of=("f",))
    assert notes == ("part1_a.verification: not asked for, as the solution does not have g.",)


def test_tasks_of_one_name_keep_their_own_results() -> None:
    part = {"part1_a": {"points": 1, "verification": ["f("]}}
    both = {key: {"max_points": 1, "required_sections": part} for key in ("one", "two")}
    template = {"deductions": {"template_only": "0 points"}, "criteria": ["Runs"], "max_points": 1}
    rubric, _ = read_legacy_rubric(
        {"rubric_elements": {**both, "running": template}}, works("# Part 1: A\nf(1)", "")
    )
    assert [one.id for one in rubric.criteria] == ["part1_a", "part1_a-2", "running"]
    assert len(rubric.adjustments[0].unless) == 2


def test_keys_know_what_nobody_asked_for() -> None:
    keys = Keys(json.loads('{"a": {"b": 1, "c": [2, 3]}, "d": "e", "f": {}}'))
    assert keys.table("a").number("b") == 1
    assert set(keys.left) == {"a.c[0]", "a.c[1]", "d", "f"}
    assert keys.text("d") == "e"
    assert set(keys.left) == {"a.c[0]", "a.c[1]", "f"}


def test_percentages_in_sentences() -> None:
    assert percent("Not using pipes = 20% deduction") == 0.2
    assert percent("7.5 % of all") == 0.075
    assert percent("lose everything") is None
