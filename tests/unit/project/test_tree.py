"""What is committed: locks without addresses, no paths of a machine, no secrets, targets that list."""

from __future__ import annotations

import re
import subprocess
import tomllib
from functools import cache
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[3]
LOCKS = (
    "requirements.lock",
    "requirements-test.lock",
    "requirements-sandbox.lock",
    "requirements-bench.lock",
    "requirements-soak.lock",
    "deploy/flower/requirements.lock",
)
MAX_BYTES = 1_000_000
BUILT = re.compile(r"(^|/)(\.|var/|build/|__pycache__/|[\w-]+\.egg-info/)|\.db(-wal|-shm)?$")
# names the students' own machines
STUDENTS_WORK = (
    "samples/",
    "tests/golden/",
    "tests/hostile/sandbox/programs/",
    "tests/integration/server/test_pseudonyms.py",
    "tests/unit/documents/test_pseudonyms.py",
    "tests/unit/execution/test_path_repair.py",
)

# after a quote, a space or the like: the beginning of an absolute path
MACHINE_PATH = re.compile(r"""(?:^|[\s"'=:(`\[])/(?:home|root|work|Users)/\w""")
# what words begin with stands together: asked for at each place once, not by each kind
SECRET = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY|\b(?:AKIA[0-9A-Z]{16}\b|gh[pousr]_[A-Za-z0-9]{36}|glpat-[\w-]{20}"
    r"|hf_[A-Za-z0-9]{30}|sk-[A-Za-z0-9]{32}|xox[baprs]-[\w-]{20}|whsec_[A-Za-z0-9+/]{24})"
)
REGISTRY = re.compile(
    r"https?://[\w.:-]+(?:/\w+)*/(?:simple|packages)\b|-{2}(?:extra-)?index.url|-{2}find.links[ =]\S*:"
)


def tracked() -> list[Path]:
    """Every file that is or would be committed; without a repository, every file that is not hidden."""
    if (ROOT / ".git").exists():
        command = [
            "git",
            "-c",
            "safe.directory=*",
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ]
        shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        paths = [ROOT / name for name in shown.stdout.split("\0") if name]
    else:
        paths = [path for path in ROOT.rglob("*") if not BUILT.search(str(path.relative_to(ROOT)))]
    return [path for path in paths if path.is_file() and path != Path(__file__)]


@cache
def texts() -> dict[str, str]:
    """Every text file: its path and what is in it."""
    contents = {str(path.relative_to(ROOT)): path.read_bytes() for path in tracked()}
    return {
        name: content.decode("utf-8", "replace")
        for name, content in contents.items()
        if b"\0" not in content[:8000]
    }


def hits(pattern: re.Pattern[str]) -> list[tuple[str, int]]:
    """(file, line number) of what a pattern finds."""
    return [
        (name, text.count("\n", 0, hit.start()) + 1)
        for name, text in texts().items()
        for hit in pattern.finditer(text)
    ]


def locked(name: str) -> dict[str, list[tuple[Version, Marker | None]]]:
    """Package → the versions of a lock file, with the environments that each is for."""
    found: dict[str, list[tuple[Version, Marker | None]]] = {}
    for line in (ROOT / name).read_text().splitlines():
        if line and line[0].isalnum():
            requirement = Requirement(line.removesuffix("\\"))
            (specifier,) = requirement.specifier
            assert specifier.operator == "==", line
            entry = (Version(specifier.version), requirement.marker)
            found.setdefault(canonicalize_name(requirement.name), []).append(entry)
    return found


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_holds_names_versions_and_hashes_and_no_address(name: str) -> None:
    content = (ROOT / name).read_text()
    assert "://" not in content
    for block in re.split(r"\n(?=\w)", content.strip()):
        assert re.match(r"[\w.-]+==[\w.]+( ; .+)? \\\n", block), block.splitlines()[0]
        assert "    --hash=sha256:" in block, block.splitlines()[0]


def test_the_locks_agree() -> None:
    run, test = locked("requirements.lock"), locked("requirements-test.lock")
    for name, versions in run.items():
        assert {version for version, _ in versions} == {version for version, _ in test[name]}, name


@pytest.mark.parametrize(
    ("lock", "extras"),
    [
        ("requirements-sandbox.lock", ["sandbox"]),
        ("requirements-bench.lock", ["bench"]),
        ("requirements-soak.lock", ["soak"]),
        ("requirements.lock", ["web", "workers", "embedded"]),
        ("requirements-test.lock", ["web", "workers", "embedded", "mlx", "tracing", "test"]),
    ],
)
def test_a_lock_satisfies_pyproject(lock: str, extras: list[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    # the project itself is not installed beside students' work and other people's programs
    own = [] if extras in (["sandbox"], ["bench"], ["soak"]) else project["dependencies"]
    wanted = [*own, *(r for e in extras for r in project["optional-dependencies"][e])]
    versions = locked(lock)
    for text in wanted:
        requirement = Requirement(text)
        entries = versions.get(canonicalize_name(requirement.name))
        assert entries, f"{requirement.name} is not in {lock}: run make lock"
        for version, _ in entries:
            assert requirement.specifier.contains(version, prereleases=True), f"{text}: run make lock"


def test_no_paths_of_a_machine() -> None:
    assert [hit for hit in hits(MACHINE_PATH) if not hit[0].startswith(STUDENTS_WORK)] == []


def test_no_package_registry_is_named() -> None:
    assert hits(REGISTRY) == []


def test_no_secrets() -> None:
    assert hits(SECRET) == []


def test_the_patterns_find_what_they_are_for() -> None:
    assert MACHINE_PATH.search('folder = "' + "/".join(["", "home", "ada", "grader"]) + '"')
    assert not MACHINE_PATH.search("GET /api/v1/root/1 or docs/home/index")
    assert SECRET.search("key: AKIA" + "A" * 16)
    assert SECRET.search("-----BEGIN PRIVATE KEY-----")
    assert not SECRET.search("task-" + "a" * 40)
    assert REGISTRY.search("https://packages.example.org/simple")
    assert REGISTRY.search("--find-links https://wheels.example.org")


def test_no_large_files() -> None:
    assert [str(path.relative_to(ROOT)) for path in tracked() if path.stat().st_size > MAX_BYTES] == []


def test_make_lists_every_target() -> None:
    targets = re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    listed = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {"demo", "test", "lint", "format", "types", "soak", "bench", "lock", "clean"} <= set(targets)
    assert re.findall(r"^make ([a-z-]+) +\S", listed, re.MULTILINE) == targets


def test_ci_runs_what_make_test_runs() -> None:
    lines = (ROOT / ".ci/run").read_text().splitlines()
    assert lines == ["#!/usr/bin/env bash", "exec make test"]
    assert (ROOT / ".ci/run").stat().st_mode & 0o100
    assert "run: .ci/run" in (ROOT / ".github/workflows/test.yml").read_text()
