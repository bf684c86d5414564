"""What is found on this machine to run students' Python with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from grading.config.settings import SandboxSettings
from tests.integration.sandbox.python_sandboxes import commands, driver
from workers.sandbox.runtimes import base, find_runtime, python


def test_the_environment_of_the_checks_is_found_and_nothing_of_the_servers_is_in_it() -> None:
    found = find_runtime("python", SandboxSettings())
    assert found.problem == ""
    assert len(found.digest) == 64
    assert found.work_argv[0].startswith("/grader/python/")
    sources = {str(mount.source) for mount in found.mounts}
    assert str(Path(sys.prefix, "sandbox").resolve()) in sources
    assert str(Path(sys.prefix).resolve()) not in sources
    assert find_runtime("python", SandboxSettings()) is found


def test_the_folder_of_the_drivers_is_made_again_when_it_was_tidied_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    python._find.cache_clear()
    try:
        (folder,) = (
            m.source
            for m in find_runtime("python", SandboxSettings()).mounts
            if m.target == "/grader/drivers"
        )
        assert folder.parent == tmp_path
        assert list(folder.glob("__pycache__/python_document.*.pyc"))
        folder.rename(tmp_path / "away")
        (again,) = (
            m.source
            for m in find_runtime("python", SandboxSettings()).mounts
            if m.target == "/grader/drivers"
        )
        assert again == folder
        assert (again / "python_submission.py").read_bytes() == (
            base.DRIVERS / "python_submission.py"
        ).read_bytes()
    finally:
        python._find.cache_clear()


def test_a_folder_of_somebody_else_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    name = python._compiled(sys.executable, "v").name
    (tmp_path / name).rename(tmp_path / "away")
    (tmp_path / name).symlink_to(tmp_path / "away")
    assert python._compiled(sys.executable, "v").name != name


def test_another_python_can_be_named(tmp_path: Path) -> None:
    named = find_runtime("python", SandboxSettings(python=sys._base_executable))  # type: ignore[attr-defined]
    assert named.problem == ""
    assert named.digest != find_runtime("python", SandboxSettings()).digest
    work, _ = commands(sys._base_executable)  # type: ignore[attr-defined]
    with driver(work, tmp_path / "work") as sandbox:
        (cell,) = sandbox.play("print('hello')")
        assert cell.state == "ran"


@pytest.mark.parametrize(
    ("python", "problem"),
    [
        ("/nowhere/python3", "sandbox.python: there is no program /nowhere/python3; run `make sandbox`"),
        ("true", "sandbox.python: true does not start as a Python; run `make sandbox`"),
        ("old", "is Python 3.8.1; name Python 3.9 or newer."),
    ],
)
def test_a_python_that_cannot_be_used_is_a_problem_with_a_remedy(
    tmp_path: Path, python: str, problem: str
) -> None:
    if python == "old":
        old = tmp_path / "old"
        old.write_text(
            "#!/bin/sh\n"
            'echo \'{"version": "3.8.1 (x)", "number": [3, 8], "prefix": "/", "base": "/", '
            '"program": "/", "packages": []}\'\n'
        )
        old.chmod(0o755)
        python = str(old)
    found = find_runtime("python", SandboxSettings(python=python))
    assert problem in found.problem
    assert found.work_argv == ()


def test_an_image_brings_its_own_python() -> None:
    found = find_runtime("python", SandboxSettings(backend="container", engine="docker", image="checks:1"))
    other = find_runtime("python", SandboxSettings(backend="container", engine="docker", image="checks:2"))
    assert found.work_argv[0] == "python3"
    assert {mount.source.parent for mount in found.mounts} == {base.DRIVERS}
    assert found.digest != other.digest


def test_students_python_knows_its_packages_and_not_the_servers() -> None:
    program = Path(sys.prefix, "sandbox", "bin", "python")
    code = "import IPython, matplotlib, numpy, pandas, pytest\n"
    code += "try:\n    import flask\nexcept ImportError:\n    print('apart')"
    done = subprocess.run([program, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "apart\n"
