"""Parity of machines: an exact test that a shift of half a level does not escape, and noise does not fool."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

from bench.parity import Setting, measure, unlike
from grading.domain.jobs import Tokens
from grading.domain.shadow_runs import ShadowOutcome
from grading.statistics import parity
from grading.statistics.golden_runs import Finding, Night, findings, key
from grading.statistics.parity import Levels, compare, deviations


def drawn_runs(drawn: random.Random, count: int) -> list[Levels]:
    return [{"a": drawn.randint(1, 2), "b": drawn.randint(0, 3), "c": 4} for _ in range(count)]


def brute_force(tested: list[Levels], reference: list[Levels]) -> float:
    runs = [*tested, *reference]

    def far(chosen: set[int]) -> float:
        apart = []
        for name in ("a", "b"):
            inside = sum(runs[at][name] for at in chosen) / len(chosen)
            rest = [run[name] for at, run in enumerate(runs) if at not in chosen]
            apart.append(inside - sum(rest) / len(rest))
        return round(abs(sum(apart)) + sum(map(abs, apart)), 9)

    seen = far(set(range(len(tested))))
    ways = [far(set(one)) for one in combinations(range(len(runs)), len(tested))]
    return sum(way >= seen for way in ways) / len(ways)


def test_p_of_a_submission_is_that_of_all_permutations(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"TRUNCATION": 1.0, "LEAST_SUBMISSIONS": 1, "LEAST_SHIFT": 0.0}.items():
        monkeypatch.setattr(parity, name, value)
    drawn = random.Random(7)
    for _ in range(20):
        tested, reference = drawn_runs(drawn, 3), drawn_runs(drawn, 5)
        found = compare({"s": tested}, {"s": reference})
        assert found is not None
        (moved,) = found.moved
        assert moved.p == pytest.approx(brute_force(tested, reference))
        assert moved.p - 1e-9 <= found.p <= moved.p * 1.05 + 0.04  # the rounding only makes it larger


def test_a_planted_machine_is_noticed_and_noise_is_not() -> None:
    found = measure(Setting(criteria=4, noise=0.03), quiet=12, planted=5, seed=3)
    assert (found.false_alarms, found.blamed) == (0, 0)
    assert set(found.noticed.values()) == {5}


def test_rounding_of_another_device_is_noticed_only_where_it_moves_levels() -> None:
    noticed = {share: unlike(Setting(5, 0.0), share, sets=10, seed=1).alarms for share in (0.0, 0.01, 0.2)}
    assert noticed == {0.0: 0, 0.01: 0, 0.2: 10}


def test_of_two_machines_without_a_past_neither_is_sure_to_be_wrong() -> None:
    one = {f"s{at}": [{"a": 1}] * 8 for at in range(10)}
    other = {f"s{at}": [{"a": 3}] * 8 for at in range(10)}
    found = deviations({"m1": one, "m2": other}, {})
    assert [(each.machine, each.certain) for each in found] == [("m1", False), ("m2", False)]
    # who has a past is known to be the same as it was
    (found_one,) = deviations({"m1": one, "m2": other}, {"m1": one, "m2": one})
    assert (found_one.machine, found_one.compared) == ("m2", "before")


def test_a_near_tie_on_one_submission_is_no_alarm() -> None:
    same = {f"s{at}": [{"a": 1}] * 8 for at in range(10)}
    assert deviations({"m1": {**same, "s0": [{"a": 2}] * 8}, "m2": same, "m3": same}, {}) == ()
    assert compare({}, same) is None


def golden(**other: object) -> Night:
    values = {"ok": True, "levels": {"a": 2}, "engine": "ollama", "model": "m", "context_tokens": 8000}
    values |= {"tokens": Tokens(prompt=1000), "prompt_hash": "p", **other}
    outcome = ShadowOutcome.model_validate(values)
    return {key(f"s{at}", "h", outcome): [outcome] * 8 for at in range(10)}


@pytest.mark.parametrize(
    ("other", "kind"),
    [
        ({"context_tokens": 4000}, "context"),
        ({"flags": ("shortened",), "prompt_hash": "q"}, "context"),
        ({"tokens": Tokens(prompt=600)}, "reads_less"),
        ({"ok": False, "error": "prompt_too_long"}, "fails"),
        ({"digest": "sha256:bb"}, "weights"),
    ],
)
def test_what_reads_less_or_has_other_weights_is_named(other: dict[str, object], kind: str) -> None:
    usual = golden(digest="sha256:aa")
    changed = golden(**{"digest": "sha256:aa", **other})
    tonight = {"m1": usual, "m2": changed, "m3": usual}
    found = findings(tonight, {"m1": usual, "m2": usual, "m3": usual})
    assert {(one.machine, one.kind, one.certain) for one in found} == {("m2", kind, True)}
    assert findings({"m1": usual, "m2": usual}, {"m1": usual}) == ()


def test_half_of_a_context_shows_whatever_was_graded() -> None:
    other = {name.replace(" h ", " another "): runs for name, runs in golden(context_tokens=4000).items()}
    (found,) = findings({"m1": other, "m2": golden()}, {"m1": golden(), "m2": golden(context_tokens=4000)})
    assert (found.machine, found.kind, found.before, found.now) == ("m1", "context", 8000, 4000)
    assert findings({"m1": golden(context_tokens=0)}, {"m1": golden()}) == ()  # its server did not report one


def test_other_rubrics_and_accepted_weights_are_not_compared() -> None:
    usual, strict = golden(digest="sha256:aa"), golden(digest="sha256:bb", levels={"a": 0})
    moved = {name.replace(" h ", " another "): runs for name, runs in golden(levels={"a": 0}).items()}
    assert findings({"m1": moved}, {"m1": usual}) == ()
    assert findings({"m1": strict}, {"m1": usual}) == ()
    found: tuple[Finding, ...] = findings({"m1": golden(levels={"a": 0})}, {"m1": golden()})
    assert [(one.machine, one.kind, one.compared) for one in found] == [("m1", "levels", "before")]
