"""Grade a folder of real programs by running them, with their course's tests, in this machine's sandbox.

Usage: python scripts/refactory.py FOLDER [--json]

FOLDER holds question_*/{correct,wrong}/*.py with description.txt, reference/reference.py and tests/, where
input_*.txt is an expression, output_*.txt its value and global.py what comes before. Each goes the way of a
submission: plan, executions, evidence, report. Exits 1 when correct programs do not outscore wrong ones with
an AUC of 0.98, a correct one has less than full marks for behaviour, or one was not run.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grading import scoring
from grading.assignments.loader import Assignment, read_folder
from grading.checks import collect
from grading.config.settings import Limits, SandboxSettings
from grading.documents import UploadedFile, read, set_apart
from grading.execution.plan import make_plan
from grading.execution.results import Ran
from grading.execution.values import Execution, Request
from workers.sandbox.backends import open_backend
from workers.sandbox.request_runner import Executor
from workers.sandbox.runtimes import find_runtime

GOAL = 0.98
LIMITS = Limits(seconds=30, cell_s=10)
FULL = 1 - 1e-9


@dataclass(frozen=True)
class Graded:
    """What one program earned."""

    question: str
    name: str
    correct: bool
    share: float
    """Of behaviour, from 0 to 1."""
    points: float | None
    """In the report."""
    end: str
    seconds: float


def assignment_of(question: Path, folder: Path) -> Assignment:
    """The question as an assignment folder, read."""
    shutil.copytree(question / "tests", folder / "tests")
    (folder / "solution").mkdir()
    shutil.copy(question / "reference" / "reference.py", folder / "solution")
    shutil.copy(question / "description.txt", folder / "task.md")
    prelude = 'prelude = "global.py"\n' if any((folder / "tests").rglob("global.py")) else ""
    (folder / "assignment.toml").write_text(
        f'title = "{question.name}"\nslug = "{question.name}"\nlanguage = "python"\n'
        '[[criteria]]\nid = "behaviour"\ntitle = "It does what is asked"\npoints = 100\n'
        f'[[criteria.checks]]\nkind = "passes_tests"\ntests = "input_*.txt"\n{prelude}'
    )
    return read_folder(folder)


def instructors_executions(requests: Mapping[str, Request], executor: Executor) -> dict[str, Execution]:
    """Those that are the same for every program."""
    return {key: executor.run(r) for key, r in requests.items() if not key.startswith("work:")}


def grade(path: Path, assignment: Assignment, executor: Executor, known: dict[str, Execution]) -> Graded:
    """One program; `known` keeps the instructor's executions."""
    documents = set_apart(read([UploadedFile(path.name, path.read_bytes())]).documents, assignment.starter)
    texts = {name: data.decode() for name, data in assignment.files if name.startswith("tests/")}
    plan = make_plan(documents, assignment.rubric, assignment.solution, files={}, tests=texts, limits=LIMITS)
    if not known:
        known.update(instructors_executions(plan.requests, executor))
    began = time.perf_counter()
    own = {key: executor.run(r) for key, r in plan.requests.items() if key.startswith("work:")}
    seconds = time.perf_counter() - began
    ran = Ran(plan, {**known, **own})
    evidence = collect(documents, assignment.rubric, assignment.solution, ran=ran)
    graded = scoring.combine(assignment.rubric, evidence, {}, {})
    return Graded(
        question=path.parent.parent.name,
        name=path.name,
        correct=path.parent.name == "correct",
        share=evidence.criteria[0].share or 0.0,
        points=graded.criteria[0].points,
        end=", ".join(execution.end for execution in own.values()) or "not run",
        seconds=seconds,
    )


def auc(graded: Sequence[Graded]) -> float:
    """How often a correct program has more points than a wrong one; the same is half."""
    good = [g.points or 0.0 for g in graded if g.correct]
    bad = [g.points or 0.0 for g in graded if not g.correct]
    wins = sum((c > w) + (c == w) / 2 for c in good for w in bad)
    return wins / (len(good) * len(bad))


def figures(graded: Sequence[Graded]) -> dict[str, Any]:
    """What is printed."""
    correct = [g for g in graded if g.correct]
    slowest = max(graded, key=lambda g: g.seconds)
    ends = sorted({g.end for g in graded})
    return {
        "programs": len(graded),
        "auc": round(auc(graded), 4),
        "auc of each question": {
            name: round(auc([g for g in graded if g.question == name]), 4)
            for name in sorted({g.question for g in graded})
        },
        "correct with full marks": f"{sum(g.share >= FULL for g in correct)} of {len(correct)}",
        "correct without": [f"{g.name} {g.share:.2f} {g.end}" for g in correct if g.share < FULL],
        "wrong with full marks": [g.name for g in graded if not g.correct and g.share >= FULL],
        "ended": {end: sum(g.end == end for g in graded) for end in ends},
        "slowest": f"{slowest.name} {slowest.seconds:.2f} s ({slowest.end})",
    }


def main() -> int:
    """Grade all, print what came of it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    settings = SandboxSettings()
    executor = Executor(open_backend(settings.backend), lambda language: find_runtime(language, settings))
    problem = executor.problem("python")
    if problem:
        sys.exit(problem)
    graded: list[Graded] = []
    began = time.perf_counter()
    for question in sorted(path for path in options.folder.iterdir() if (path / "tests").is_dir()):
        with tempfile.TemporaryDirectory() as folder:
            assignment = assignment_of(question, Path(folder))
        paths = sorted(question.glob("correct/*.py")) + sorted(question.glob("wrong/*.py"))
        known: dict[str, Execution] = {}
        graded.append(grade(paths[0], assignment, executor, known))
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            graded += pool.map(lambda path, a=assignment, k=known: grade(path, a, executor, k), paths[1:])
    found = {**figures(graded), "seconds": round(time.perf_counter() - began, 1)}
    print(json.dumps(found, indent=2) if options.json else "\n".join(f"{k}: {v}" for k, v in found.items()))
    whole = all(g.share >= FULL for g in graded if g.correct) and all(g.end != "not run" for g in graded)
    return 0 if whole and auc(graded) >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
