"""Grade a folder of real inputs through `grader submit`, on this machine with the rules engine.

Usage: python scripts/real_inputs.py FOLDER [--each N]

FOLDER holds notebooks/<name>/{*_solution.ipynb,*_template.ipynb,*_rubric.json} and
refactory/question_*/{correct,wrong}/*.py with reference/reference.py and description.txt. Prints what came of
it and exits 1 if anything failed, the solution earns below 90 % or the template above 15 %.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

from cli.commands.admin import store_assignment
from cli.dev.embedded_redis import free_port
from cli.dev.local_stack import System
from cli.settings import Settings
from grading.assignments.loader import read_folder
from grading.store import Store
from grading.store.accounts import users

COURSE = "real"


def notebook_assignment(source: Path, folder: Path) -> str:
    """An assignment from an instructor's rubric, template and solution."""
    name = source.name
    for part, kind in (("starter", "template"), ("solution", "solution")):
        (folder / part).mkdir(parents=True)
        shutil.copy(source / f"{name}_{kind}.ipynb", folder / part)
    shutil.copy(source / f"{name}_rubric.json", folder / "rubric.json")
    (folder / "assignment.toml").write_text(
        f'title = "{name}"\nslug = "{name}"\nlanguage = "r"\nrelease = "at_once"\nrubric = "rubric.json"\n'
    )
    return f"{COURSE}/{name}"


def program_assignment(source: Path, folder: Path) -> str:
    """An assignment that asks for the functions of the reference solution, with the course's own tests."""
    reference = (source / "reference" / "reference.py").read_text()
    names = [node.name for node in ast.parse(reference).body if isinstance(node, ast.FunctionDef)]
    (folder / "solution").mkdir(parents=True)
    (folder / "solution" / "reference.py").write_text(reference)
    shutil.copy(source / "description.txt", folder / "task.md")
    shutil.copytree(source / "tests", folder / "tests")
    prelude = ""
    if (source / "global.py").exists():
        shutil.copy(source / "global.py", folder / "tests")
        prelude = 'prelude = "global.py"\n'
    slug = source.name.replace("_", "-")
    (folder / "assignment.toml").write_text(
        f'title = "{slug}"\nslug = "{slug}"\nlanguage = "python"\nrelease = "at_once"\n'
        '[[criteria]]\nid = "functions"\ntitle = "The functions asked for"\npoints = 60\n'
        f'[[criteria.checks]]\nkind = "defines"\nall_of = {json.dumps(names)}\n'
        '[[criteria.checks]]\nkind = "no_errors"\n'
        '[[criteria]]\nid = "behaviour"\ntitle = "What it does"\npoints = 40\n'
        f'[[criteria.checks]]\nkind = "passes_tests"\ntests = "input_*.txt"\n{prelude}'
    )
    return f"{COURSE}/{slug}"


def submit(system: System, token: str, assignment: str, student: str, file: Path) -> dict[str, Any]:
    """One `grader submit --wait --json`."""
    command = [sys.executable, "-m", "cli", "submit", str(file), "--assignment", assignment]
    done = subprocess.run(
        [*command, "--student", student, "--priority", "batch", "--wait", "--json", "--server", system.url],
        check=False,
        env={**os.environ, "GRADER_TOKEN": token},
        capture_output=True,
        text=True,
        timeout=600,
    )
    if done.returncode != 0:
        return {"file": file.name, "status": "refused", "error": done.stderr.strip()[-300:]}
    view: dict[str, Any] = json.loads(done.stdout)
    return {**view, "file": file.name}


def main() -> int:
    """Run it; returns the exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--each", type=int, default=1000, help="programs of each kind at most")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        os.environ["GRADER_DATABASE_URL"] = f"sqlite:///{home / 'real.db'}"
        config = home / "config.toml"
        config.write_text(
            "[server]\nuploads_per_minute = 100000\napi_per_minute = 10000000\n"
            + Path("config.toml").read_text().replace("[server]", "", 1)
        )
        settings = Settings(config)
        with System(
            settings, engine="rules", port=free_port(), folder=home / "var", own_redis=True
        ) as system:
            return grade_all(system, settings, options.folder, home, options.each)


def grade_all(system: System, settings: Settings, source: Path, home: Path, each: int) -> int:
    """Import the assignments, submit everything, print the outcome."""
    programs: list[tuple[str, Path]] = []
    notebooks: list[tuple[str, Path]] = []
    store = Store(settings.config.database.url)
    with store.write() as session:
        for question in sorted((source / "refactory").glob("question_*")):
            assignment = program_assignment(question, home / question.name)
            store_assignment(session, read_folder(home / question.name), COURSE)
            for kind in ("correct", "wrong"):
                programs += [(assignment, file) for file in sorted((question / kind).glob("*.py"))[:each]]
        for folder in sorted((source / "notebooks").iterdir()):
            assignment = notebook_assignment(folder, home / folder.name)
            read = read_folder(home / folder.name)
            store_assignment(session, read, COURSE)
            print(f"{assignment}: {len(read.rubric.criteria)} criteria, {read.rubric.max_points:g} points")
            for sentence in read.notes:
                print(f"  note: {sentence}")
            notebooks += [(assignment, file) for file in sorted(folder.glob("*.ipynb"))]
        administrator = users.find_user(session, "local", "admin")
        assert administrator is not None
        token = users.create_token(
            session, administrator.id, "real", ["submit", "read"], timedelta(hours=2)
        ).secret
    store.close()
    system.until_ready(60)
    jobs = [(a, f"student-{n}", f) for n, (a, f) in enumerate(programs + notebooks)]
    with ThreadPoolExecutor(4) as pool:
        views = list(pool.map(lambda job: submit(system, token, *job), jobs))
    return judge(views, len(programs), len(notebooks))


def scores_of(views: list[dict[str, Any]], kind: str) -> list[float]:
    """The points of the programs of a kind."""
    return [v["score"] for v in views if v["file"].startswith(kind) and v.get("score") is not None]


def area(better: list[float], worse: list[float]) -> float:
    """How likely one of `better` is above one of `worse`; a draw counts half."""
    pairs = [(a > b) + (a == b) / 2 for a in better for b in worse]
    return statistics.fmean(pairs) if pairs else float("nan")


def judge(views: list[dict[str, Any]], programs: int, notebooks: int) -> int:
    """Print the outcome; 0 when everything is as it must be."""
    failed = [view for view in views if view["status"] != "graded"]
    for view in failed:
        print("FAILED", view["file"], view["status"], view.get("error", ""))
    found = {kind: scores_of(views, kind) for kind in ("correct", "wrong")}
    for kind, scores in found.items():
        if scores:
            print(f"{kind}: {len(scores)} graded, median {statistics.median(scores):.1f} of 100")
    auc = area(found["correct"], found["wrong"])
    print(f"a correct program has more points than a wrong one (AUC): {auc:.3f}")
    wrong = len(failed) + (not auc >= 0.98)
    for view in views[programs:]:
        share = (view.get("score") or 0.0) / view["max_score"] if view["status"] == "graded" else float("nan")
        print(f"{view['file']}: {view.get('score')} of {view.get('max_score')} ({share:.1%})")
        wrong += "solution" in view["file"] and not share >= 0.9
        wrong += "template" in view["file"] and not share <= 0.15
    print(f"{programs} programs and {notebooks} notebooks submitted, {len(failed)} not graded")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
