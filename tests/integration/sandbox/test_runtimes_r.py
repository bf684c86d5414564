"""Finding R, and what is said when it is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from grading.config.settings import SandboxSettings
from workers.sandbox.runtimes.r import find_r


@pytest.fixture
def rscript(tmp_path: Path) -> Path:
    """A program that answers as R with jsonlite does."""
    return program(tmp_path / "Rscript", "R version 9.9", f"lib {tmp_path}", "pkg jsonlite 1.8.4", "end")


def program(path: Path, *lines: str) -> Path:
    """A program that prints these lines."""
    path.write_text("#!/bin/sh\n" + "".join(f"echo '{line}'\n" for line in lines))
    path.chmod(0o755)
    return path


def test_r_of_this_machine_is_found() -> None:
    runtime = find_r(SandboxSettings())
    assert runtime.problem == ""
    assert runtime.language == "r"
    assert runtime.work_argv[-1] in {mount.target for mount in runtime.mounts}
    assert runtime.tests_argv[-1] in {mount.target for mount in runtime.mounts}
    assert len(runtime.digest) == 64
    assert find_r(SandboxSettings()) == runtime


def test_without_r_the_packages_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    runtime = find_r(SandboxSettings())
    assert "r-base-core r-cran-irkernel" in runtime.problem
    assert runtime.work_argv == ()


def test_a_wrong_setting_is_named(tmp_path: Path) -> None:
    assert find_r(SandboxSettings(r=str(tmp_path / "nothing"))).problem.startswith(
        "sandbox.r: there is no program"
    )


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (["R version 9.9", "end"], "R's package jsonlite, which comes with r-cran-irkernel, is missing here"),
        (["R version 9.9", "pkg jsonlite 1.8.4"], "does not start"),
        ([], "does not start"),
    ],
)
def test_an_r_that_cannot_be_used_is_explained(tmp_path: Path, lines: list[str], sentence: str) -> None:
    runtime = find_r(SandboxSettings(r=str(program(tmp_path / "Rscript", *lines))))
    assert sentence in runtime.problem


def test_an_r_of_its_own_place_is_seen_in_the_box(rscript: Path) -> None:
    runtime = find_r(SandboxSettings(r=str(rscript)))
    assert runtime.problem == ""
    assert str(rscript.parent) in {mount.target for mount in runtime.mounts}


def test_other_packages_are_another_digest(rscript: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = program(tmp_path / "other" / "Rscript", "R version 9.9", "pkg jsonlite 2.0.0", "end")
    digests = {find_r(SandboxSettings(r=str(path))).digest for path in (rscript, other)}
    assert len(digests) == 2


def test_a_container_brings_its_own_r(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    first, second = (
        find_r(SandboxSettings(backend="container", engine="podman", image=name)) for name in ("a", "b")
    )
    assert first.problem == ""
    assert first.work_argv[-2:] == ("Rscript", "/grader/r_submission.R")
    assert first.digest != second.digest
