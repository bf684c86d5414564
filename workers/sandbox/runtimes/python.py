"""What runs students' Python: an interpreter, our drivers and what both need from this machine."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from grading.config.settings import SandboxSettings
from workers.sandbox.backends.base import Mount
from workers.sandbox.runtimes.base import DRIVERS, INSIDE, Runtime

OWN = f"{INSIDE}/python"
"""Where students' environment is seen in a sandbox."""
OLDEST = (3, 9)
_PROBE_S = 60.0
_IN_A_BOX = ("-s", "-B", "-S")
"""Python alone; the driver brings in packages when the work asks for one. Not -I: sets of texts would then
have another order in each run, and what is printed of them could not be compared."""
_ENVIRON = {"PYTHONHASHSEED": "0"}

_PROBE = """
import importlib.metadata, json, pkgutil, sys
modules = {m.name for m in pkgutil.iter_modules()} | {*sys.builtin_module_names}
found = sorted({f"{d.metadata['Name']} {d.version}" for d in importlib.metadata.distributions()})
print(json.dumps({
    "version": sys.version, "number": sys.version_info[:2], "prefix": sys.prefix, "base": sys.base_prefix,
    "program": sys.executable, "packages": found, "modules": sorted(modules),
}))
"""


def find_python(settings: SandboxSettings) -> Runtime:
    """The Python of `sandbox.python`, else the one that `make sandbox` made, else the one of this system."""
    if settings.backend == "container":
        return _in_image(settings.image)
    found = _find(settings.python or _own_python(), bool(settings.python))
    if found.problem or all(mount.source.exists() for mount in found.mounts):
        return found
    # a folder of temporary files was tidied up, or an environment was made anew
    _find.cache_clear()
    return _find(settings.python or _own_python(), bool(settings.python))


def _own_python() -> str:
    """The environment that `make sandbox` makes; without it, the Python that ours was made from."""
    own = Path(sys.prefix, "sandbox", "bin", "python")
    return str(own) if own.exists() else str(getattr(sys, "_base_executable", "") or sys.executable)


@functools.cache
def _find(named: str, by_setting: bool) -> Runtime:
    where = "sandbox.python: " if by_setting else ""
    program = shutil.which(named)
    if program is None:
        return _without(f"{where}there is no program {named}; run `make sandbox`, which makes one.")
    try:
        about = _probe(program)
    except (OSError, subprocess.SubprocessError, ValueError, KeyError):
        return _without(f"{where}{named} does not start as a Python; run `make sandbox`, which makes one.")
    if tuple(about["number"]) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        return _without(
            f"{where}{named} is Python {about['version'].split()[0]}; name Python {oldest} or newer."
        )
    inside, mounts = _places(about)
    return Runtime(
        language="python",
        work_argv=(inside, *_IN_A_BOX, f"{INSIDE}/drivers/python_submission.py"),
        tests_argv=(inside, *_IN_A_BOX, f"{INSIDE}/drivers/python_tests.py"),
        mounts=(Mount(_compiled(program, about["version"]), f"{INSIDE}/drivers"), *mounts),
        fork_argv=(inside, *_IN_A_BOX, f"{INSIDE}/drivers/python_forkserver.py"),
        fork_mounts=(Mount(_compiled(program, about["version"]), f"{INSIDE}/drivers"), *mounts),
        environ=_ENVIRON,
        digest=_digest([about["version"], *about["packages"]]),
        packages=frozenset(about["modules"]),
        installed=frozenset(about["packages"]),
    )


def _in_image(image: str) -> Runtime:
    """A container's image brings its own Python; only the drivers come from here."""
    return Runtime(
        language="python",
        work_argv=("python3", *_IN_A_BOX, f"{INSIDE}/drivers/python_submission.py"),
        tests_argv=("python3", *_IN_A_BOX, f"{INSIDE}/drivers/python_tests.py"),
        mounts=tuple(Mount(source, f"{INSIDE}/drivers/{source.name}") for source in _sources()),
        environ=_ENVIRON,
        digest=_digest([f"image {image}"]),
    )


def _without(problem: str) -> Runtime:
    return Runtime("python", (), (), (), {}, "", problem=problem)


def _probe(program: str) -> dict[str, Any]:
    """What a Python says about itself. Raises OSError, SubprocessError and ValueError."""
    done = subprocess.run(
        [program, "-I", "-c", _PROBE],
        check=True,
        capture_output=True,
        text=True,
        timeout=_PROBE_S,
        stdin=subprocess.DEVNULL,
        env={"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8", "HOME": "/nonexistent"},
    )
    about = json.loads(done.stdout)
    if not isinstance(about, dict):
        raise ValueError("not a Python")
    return about


def _places(about: Mapping[str, Any]) -> tuple[str, list[Mount]]:
    """(the program inside, what of it has to be seen there); a sandbox has all of /usr anyway."""
    prefix, base, program = Path(about["prefix"]), Path(about["base"]), Path(about["program"])
    mounts = []
    # under its own name and under those of the links that lead to it
    for name in dict.fromkeys((base, base.resolve(), program.resolve().parent.parent)):
        if not name.is_relative_to("/usr"):
            mounts.append(Mount(name.resolve(), str(name)))
    if prefix == base:
        return str(program), mounts
    mounts.append(Mount(prefix.resolve(), OWN))
    return f"{OWN}/{program.relative_to(prefix)}", mounts


# --- drivers ------------------------------------------------------------------------------------------


@functools.cache
def _sources() -> tuple[Path, ...]:
    return tuple(sorted(DRIVERS.glob("python_*.py")))


def _digest(about: list[str]) -> str:
    content = hashlib.sha256("\n".join(about).encode())
    for source in _sources():
        content.update(source.name.encode() + b"\0" + source.read_bytes())
    return content.hexdigest()


def _compiled(program: str, version: str) -> Path:
    """A folder with the drivers and their bytecode, which saves each start a third of its time."""
    name = f"grader-drivers-{os.geteuid()}-{_digest([version])[:20]}"
    final = Path(tempfile.gettempdir(), name)
    if _is_ours(final):
        return final
    made = Path(tempfile.mkdtemp(prefix=f"{name}."))
    for source in _sources():
        (made / source.name).write_bytes(source.read_bytes())
    inside = f"{INSIDE}/drivers"
    command = [program, "-I", "-m", "compileall", "-q", "-d", inside, "--invalidation-mode", "unchecked-hash"]
    with suppress(OSError, subprocess.SubprocessError):  # without bytecode they start too, only slower
        subprocess.run([*command, str(made)], check=True, capture_output=True, timeout=_PROBE_S)
    for place in (made, *made.rglob("*")):
        place.chmod(0o755 if place.is_dir() else 0o644)
    try:
        made.rename(final)
    except OSError:  # another process was faster, or the name is somebody else's
        if _is_ours(final):
            shutil.rmtree(made)
            return final
        return made
    return final


def _is_ours(folder: Path) -> bool:
    """Whether a folder in the common place for temporary files was made by us and is whole."""
    try:
        state = folder.lstat()
    except OSError:
        return False
    ours = stat.S_ISDIR(state.st_mode) and state.st_uid == os.geteuid() and not state.st_mode & 0o022
    return ours and all((folder / source.name).is_file() for source in _sources())
