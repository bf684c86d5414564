"""The guard of the main path: which differences it lets through, and that its baseline is a commit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench import guard


def figures(p50_ms: float, per_s: float) -> guard.Figures:
    return {"grader_p50_ms": p50_ms, "grader_per_s": per_s}


BASE = [figures(20.0, 100.0), figures(21.0, 101.0), figures(90.0, 20.0)]
"""With a run while the machine did something else."""


@pytest.mark.parametrize(
    ("after", "holds"),
    [
        ([figures(20.0, 100.0)] * 3, True),
        ([figures(24.1, 100.0)] * 3, True),
        ([figures(24.2, 100.0)] * 3, False),  # 1.152 times the latency
        ([figures(20.0, 87.0)] * 3, True),
        ([figures(20.0, 86.9)] * 3, False),
        ([figures(10.0, 200.0), figures(11.0, 190.0), figures(500.0, 1.0)], True),
    ],
)
def test_medians_may_be_worse_by_no_more_than_the_bound(after: list[guard.Figures], holds: bool) -> None:
    assert guard.verdict(BASE, after).holds == holds


def test_the_baseline_is_a_commit_with_a_reason() -> None:
    baseline = guard.read_baseline()
    assert re.fullmatch(r"[0-9a-f]{40}", baseline.commit)
    assert len(baseline.reason) > 20


def test_both_trees_take_turns_in_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []

    def run(tree: Path) -> guard.Figures:
        begun.append(tree.name)
        return {"grader_p50_ms": 1.0, "grader_per_s": 1.0, "latency_ratio": 1.0, "drain_ratio": 1.0}

    monkeypatch.setattr(guard, "run", run)
    before, after = guard.compare(Path("old"), Path("new"), pairs=2)
    assert begun == ["old", "new", "new", "old"]
    assert (len(before), len(after)) == (2, 2)
