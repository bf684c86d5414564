"""An engine whose folder and entry point are removed takes nothing else with it."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

SHARED = {"__init__.py", "base.py", "estimators.py", "token_estimates.py", "http", "__pycache__"}
"""What all engines use. All else in the folder is an engine, or a part of one that can be left out."""
ENGINES = Path("workers", "machine", "engines")
PACKAGE = ".".join(ENGINES.parts)


def links(source: Path, target: Path, left_out: Iterable[str]) -> None:
    """A folder whose entries are those of another one."""
    target.mkdir(parents=True)
    for entry in source.iterdir():
        if entry.name not in left_out:
            (target / entry.name).symlink_to(entry)


def project_of(root: Path) -> dict[str, Any]:
    """The table of the project."""
    return dict(tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"])


def announce(root: Path, folder: Path, removed: Iterable[str]) -> None:
    """What pip notes of this project, without the entry points of these engines."""
    gone = tuple(f"{PACKAGE}.{name}{end}" for name in removed for end in ".:")
    project = project_of(root)
    lines = []
    for group, entries in project["entry-points"].items():
        kept = [f"{name} = {value}" for name, value in entries.items() if not value.startswith(gone)]
        lines += [f"[{group}]", *kept]
    info = folder / f"grader-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: grader\nVersion: {project['version']}\n")
    (info / "entry_points.txt").write_text("\n".join(lines))


def test_each_engine_can_be_removed(root: Path, tmp_path: Path) -> None:
    engines = sorted(path.stem for path in (root / ENGINES).iterdir() if path.name not in SHARED)
    assert len(engines) > 5
    tree = tmp_path / "tree"
    links(root, tree, ("workers", ".venv", ".git", "var"))
    links(root / "workers", tree / "workers", ("machine",))
    links(root / "workers" / "machine", tree / "workers" / "machine", ("engines",))
    names = {path.name for path in (root / ENGINES).iterdir()} - SHARED
    links(root / ENGINES, tree / ENGINES, names)
    announce(root, tree, engines)
    for engine in engines:
        place = tree / "without" / engine
        links(root / ENGINES, place / "engines", (engine, f"{engine}.py"))
        announce(root, place, (engine,))
    announced = project_of(root)["entry-points"]["grader.engines"].items()
    cases = []
    for engine in engines:
        places = (f"{PACKAGE}.{engine}.", f"{PACKAGE}.{engine}:")
        cases.append(f"{engine}={next((name for name, value in announced if value.startswith(places)), '')}")
    program = [sys.executable, str(root / "tests" / "support" / "removed_plugin.py"), str(tree), *cases]
    run = subprocess.run(program, cwd=tree, capture_output=True, text=True, timeout=200)
    assert run.returncode == 0, run.stderr[-4000:]
