"""The locked packages of a machine, and the wheels that it cannot fetch itself."""

from __future__ import annotations

import fcntl
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from cli.deploy.file_transfer import File, file
from cli.deploy.ssh import MachineError
from grading.config.settings import Machine
from workers.machine.engines import source_of_models

ROOT = Path(__file__).resolve().parents[2]
NEEDED_BY_OTHERS = {"packaging", "pyyaml"}
"""Packages that tests name and that libraries need as well."""
DOWNLOAD_S = 3600.0
OLDEST_GLIBC = 17


def lock_for(machine: Machine, markers: Mapping[str, str], root: Path = ROOT) -> str:
    """The locked packages of a machine: names, versions and hashes, without any that are not for it.

    What loads models of the hub is locked with the tests' packages, the rest for every installation.
    """
    in_process = any(source_of_models(kind) == "hub" for kind in machine.kinds)
    mlx = bool(machine.prefill) or in_process
    path = root / ("requirements-test.lock" if mlx else "requirements.lock")
    try:
        text = path.read_text(encoding="utf-8")
        extras = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"][
            "optional-dependencies"
        ]
    except FileNotFoundError as error:
        raise MachineError(f"{error.filename} does not exist. Deploy from a checkout of Grader.") from None
    named = {canonicalize_name(Requirement(one).name) for one in [*extras["test"], *extras["embedded"]]}
    unwanted = {str(name) for name in named} - NEEDED_BY_OTHERS
    wanted_entries = [one for one in _entries(text) if _wanted(one, unwanted, markers)]
    return "".join(_without_marker(one) for one in wanted_entries)


def _entries(text: str) -> list[str]:
    """A package with its hashes each."""
    return re.findall(r"^[A-Za-z0-9][^\n]*\n(?:[ \t]+[^\n]*\n)*", text, re.MULTILINE)


def _wanted(entry: str, unwanted: set[str], markers: Mapping[str, str]) -> bool:
    head = entry.split("\n", 1)[0].rstrip(" \\")
    name, _, marker = head.partition(";")
    if canonicalize_name(name.partition("==")[0].strip()) in unwanted:
        return False
    return not marker.strip() or Marker(marker).evaluate(dict(markers))


def _without_marker(entry: str) -> str:
    # pip would read them for this computer when it fetches wheels for another
    return re.sub(r"\s*;[^\n]*?(\s*\\)?\n", r"\1\n", entry, count=1)


def platforms(facts: Mapping[str, Any]) -> list[str]:
    """The platform tags whose wheels run on a machine, best first."""
    arch = facts["markers"]["platform_machine"]
    if facts["markers"]["sys_platform"] == "darwin":
        major, _, rest = facts["macos"].partition(".")
        minor = rest.partition(".")[0] or "0"
        return [f"macosx_{major}_{minor if int(major) < 11 else 0}_{arch}"]
    glibc = re.fullmatch(r"2\.(\d+)", facts["glibc"])
    if facts["markers"]["sys_platform"] != "linux" or glibc is None:
        raise MachineError(f"There are no wheels for {facts['platform']}. Use Linux with glibc, or macOS.")
    newest = int(glibc[1])
    tags = [f"manylinux_2_{minor}_{arch}" for minor in range(newest, OLDEST_GLIBC - 1, -1)]
    return [*tags, f"manylinux2014_{arch}", f"linux_{arch}"]


def fetch_wheels(machine: str, lock: str, facts: Mapping[str, Any], folder: Path) -> list[Path]:
    """The wheels of a lock for a machine, kept in `folder`; nothing is fetched that is there already.

    MachineError when a package has no wheel for that platform or no package index is within reach.
    """
    folder.mkdir(parents=True, exist_ok=True)
    wanted = folder / "requirements.lock"
    wanted.write_text(lock, encoding="utf-8")
    version = ".".join(facts["version"].split(".")[:2])
    command = [
        *(sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "-q", "download"),
        *("--no-deps", "--require-hashes", "--only-binary=:all:", "--implementation", "cp"),
        *("--python-version", version, "--dest", str(folder), "-r", str(wanted)),
    ]
    for tag in platforms(facts):
        command += ["--platform", tag]
    problem = ""
    for source in (["--no-index", "--find-links", str(folder)], []):
        try:
            done = subprocess.run(
                [*command, *source], capture_output=True, text=True, timeout=DOWNLOAD_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise MachineError(f"The download took longer than {DOWNLOAD_S / 60:.0f} minutes.") from None
        if done.returncode == 0:
            return sorted(folder.glob("*.whl"))
        problem = " ".join((done.stderr or done.stdout).split())[-400:]
    raise MachineError(
        f"{machine}: wheels are missing for {facts['platform']} with Python {version}: {problem}. "
        f"Put what is missing into {folder}, or connect this computer or the machine to a package index."
    )


def wheels_for(
    machine: str, lock: str, facts: Mapping[str, Any], folder: Path, say: Callable[[str], None]
) -> list[File]:
    """The wheels of a lock for a machine, those that are missing here fetched; MachineError otherwise."""
    version = ".".join(facts["version"].split(".")[:2])
    kept = folder / f"{platforms(facts)[0]}-{version}"
    say(f"downloading wheels into {kept}")
    kept.mkdir(parents=True, exist_ok=True)
    with (kept / ".lock").open("w") as alone:  # machines of one kind are deployed at the same time
        fcntl.flock(alone, fcntl.LOCK_EX)
        odd = _refuse_damaged(kept, lock)
        for path in odd:
            say(f"{path} is skipped: this is not the name of a wheel")
        wheels = [path for path in fetch_wheels(machine, lock, facts, kept) if path not in odd]
        files = [file(path.name, path) for path in wheels]
    return [one for one in files if one.sha256 in lock]


def _refuse_damaged(folder: Path, lock: str) -> list[Path]:
    """MachineError for a wheel of a locked version with other content: pip would say that none is there.

    Returns the files that are not named as wheels are, which pip passes over.
    """
    locked = set(re.findall(r"^([^\s;]+==[^\s;]+)", lock, re.MULTILINE))
    odd = []
    for path in sorted(folder.glob("*.whl")):
        try:
            name, version, _, _ = parse_wheel_filename(path.name)
        except InvalidWheelFilename:
            odd.append(path)
            continue
        if f"{name}=={version}" in locked and file(path.name, path).sha256 not in lock:
            raise MachineError(f"{path} is damaged. Remove it and deploy again: it is then downloaded again.")
    return odd
