"""`make bench-guard`: the main path of this tree beside that of a baseline commit, in turn on one machine.

The baseline stands in `bench/baseline.toml`. It is checked out into a temporary worktree with an environment
by its own lock file, and both trees run `grader bench overhead` one after the other, the order changing each
time. The medians of latency and drain may be worse by no more than `MOST`.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MOST = 1.15
"""Times the baseline's latency, or its drain over this tree's."""
PAIRS = 3
OVERHEAD = ("bench", "overhead", "--json", "--samples", "60", "--queued", "500")
PATIENCE_S = 600


@dataclass(frozen=True)
class Baseline:
    """A commit that the main path is compared with, and why it is that one."""

    commit: str
    reason: str


@dataclass(frozen=True)
class Verdict:
    """How many times worse than the baseline this tree is; below 1 it is better."""

    latency: float
    drain: float

    @property
    def holds(self) -> bool:
        """Whether both are within the bound."""
        return max(self.latency, self.drain) <= MOST


Figures = Mapping[str, float]
"""Of one run: `grader_p50_ms`, `grader_per_s` and the others that `grader bench overhead --json` prints."""


def read_baseline(path: Path = ROOT / "bench" / "baseline.toml") -> Baseline:
    """The baseline of this tree. Raises KeyError where a part is missing."""
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    return Baseline(commit=content["commit"], reason=content["reason"])


def verdict(before: Sequence[Figures], after: Sequence[Figures]) -> Verdict:
    """From the medians of all runs of the baseline and of this tree."""

    def median(runs: Sequence[Figures], name: str) -> float:
        return statistics.median(run[name] for run in runs)

    latency = median(after, "grader_p50_ms") / median(before, "grader_p50_ms")
    drain = median(before, "grader_per_s") / median(after, "grader_per_s")
    return Verdict(round(latency, 3), round(drain, 3))


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """The tree of a commit in a worktree of its own, with an environment."""
    with tempfile.TemporaryDirectory(prefix="grader-baseline-") as name:
        tree = Path(name) / "tree"
        _git("worktree", "add", "--detach", str(tree), commit)
        try:
            # make would hand on the place of this tree's environment
            environment = {key: value for key, value in os.environ.items() if key != "VENV"}
            subprocess.run(["scripts/bootstrap", "run"], cwd=tree, env=environment, check=True)
            yield tree
        finally:
            shutil.rmtree(tree, ignore_errors=True)
            _git("worktree", "prune")


def _git(*arguments: str) -> None:
    subprocess.run(["git", "-C", str(ROOT), *arguments], check=True)


def run(tree: Path) -> Figures:
    """The figures of one run in a tree."""
    python = tree / os.environ.get("VENV", ".venv") / "bin" / "python"
    python = Path(sys.executable) if tree == ROOT else python
    command = [str(python), "-m", "cli", *OVERHEAD]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    figures: Figures = json.loads(done.stdout)
    return figures


def compare(before: Path, after: Path, pairs: int = PAIRS) -> tuple[list[Figures], list[Figures]]:
    """Runs of both trees by turns; every other pair begins with the second, as its pace may change."""
    found: dict[Path, list[Figures]] = {before: [], after: []}
    for pair in range(pairs):
        for tree in (before, after) if pair % 2 == 0 else (after, before):
            figures = run(tree)
            found[tree].append(figures)
            side = "baseline" if tree == before else "this tree"
            print(
                f"{side:9} {figures['grader_p50_ms']:7.2f} ms {figures['latency_ratio']:5.2f} x"
                f" {figures['grader_per_s']:7.1f}/s {figures['drain_ratio']:6.3f}",
                flush=True,
            )
    return found[before], found[after]


def main() -> int:
    """Compare, print, and end with 1 when this tree is too much slower."""
    baseline = read_baseline()
    print(f"baseline {baseline.commit[:7]}: {baseline.reason}", flush=True)
    with checked_out(baseline.commit) as tree:
        found = verdict(*compare(tree, ROOT))
    print(f"latency {found.latency} x, drain {found.drain} x the baseline's cost; at most {MOST}")
    return 0 if found.holds else 1


if __name__ == "__main__":
    sys.exit(main())
