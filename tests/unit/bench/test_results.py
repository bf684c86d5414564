"""What `grader bench router` reads off a run: makespans beside the bound."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from bench.router.command import command
from bench.router.cost_model import CARDS
from bench.router.lower_bound import bound_s
from bench.router.results import KNOWN, OURS, Ended, Outcome, Plan, ScenarioResult, table
from bench.router.scenarios import Scenario, backlog, lost, slow

MAC, OTHER = "mac-studio-1", "mac-studio-2"


def test_fewer_submissions_meet_what_happens_sooner():
    assert (lost(2, 1).name, lost(2, 1).setting.changes) == ("lost", {MAC: ((300.0, 0.0), (600.0, 1.0))})
    assert (lost(2, 1, 40).name, lost(2, 1, 40).setting.changes) == (
        "lost40",
        {MAC: ((30.0, 0.0), (60.0, 1.0))},
    )
    assert (slow(2, 1, 40).name, len(slow(2, 1, 40).arrivals)) == ("slow40", 40)


def played(scenario: Scenario, *outcomes: Outcome) -> ScenarioResult:
    return ScenarioResult(Plan(scenario, 10.0), outcomes)


def outcome(way: str, seconds: float) -> Outcome:
    return Outcome(way, [Ended(n, 0.0, seconds) for n in range(40)])


def test_the_bound_that_knows_changes_stands_only_where_there_are_some():
    plain = played(backlog(40, 2, 1), outcome(OURS, 1000.0))
    assert "known" not in table([plain])[0]
    happened = played(lost(2, 1, 40), outcome(OURS, 1000.0), outcome("roles", 1100.0))
    assert table([happened])[0].endswith(f"| {KNOWN} |")
    of = lost(2, 1, 40)
    known = bound_s(CARDS, 2, of.arrivals, of.setting.changes)
    assert happened.rows()[0]["× bound, changes known"] == round(1000 / known, 3)
    assert known > happened.bound_s


@pytest.mark.parametrize(("option", "value"), [("--scenario", "slow0"), ("--only", "ours+others")])
def test_what_there_is_not_is_refused_with_what_there_is(option: str, value: str):
    said = CliRunner().invoke(command, [option, value])
    assert said.exit_code == 2
    assert f"'{value}' is not one of" in said.output
