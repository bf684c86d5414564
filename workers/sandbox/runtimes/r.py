"""What runs students' R: Rscript of this system, the packages beside it, and our drivers."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path, PurePath

from grading.config.settings import SandboxSettings
from workers.sandbox.backends.base import Mount
from workers.sandbox.runtimes.base import DRIVERS, INSIDE, Runtime
from workers.sandbox.runtimes.python import find_python

HOW = "on Debian and Ubuntu: apt-get install r-base-core r-cran-irkernel r-cran-testthat"
NO_SUCH = "sandbox.r: there is no program {}; name an Rscript, or leave it out to take the one on the PATH"
ENVIRON = {"R_DEFAULT_INTERNET_TIMEOUT": "1"}
_PROBE_S = 60.0

# The protocol gets descriptors of its own; what the work itself prints goes to a file, in the order in which
# it is printed, also by C code and programs that are started. A file that grows too large is an error in R
# and not the end of it.
_START = (
    'trap "" XFSZ; exec 3<&0 4>&1 </dev/null >>"${TMPDIR:-/tmp}/printed.$$" 2>&1; exec "$0" --vanilla "$1"'
)

# The version, where R lies, and each package with its version; the last line tells that it came to the end.
_PROBE = """
p <- installed.packages(fields = character())
home <- normalizePath(R.home())
packages <- sort(paste("pkg", p[, "Package"], p[, "Version"]))
cat(R.version.string, paste("lib", c(home, .libPaths())), packages, "end", sep = "\\n")
"""


def argv(rscript: str, driver: str) -> tuple[str, ...]:
    """The command that starts a driver with its JSON lines on stdin and stdout."""
    return ("/bin/sh", "-c", _START, rscript, driver)


def find_r(settings: SandboxSettings) -> Runtime:
    """Rscript of `sandbox.r`, else of the PATH, looked up once a process; a container's image has its own."""
    if settings.backend == "container":
        return _runtime("Rscript", [f"image {settings.image}"], [])
    rscript = shutil.which(settings.r or "Rscript") or ""
    found = _find(settings.r, rscript)
    return found if found.problem else _with_fork_server(found, rscript, settings)


@functools.cache
def _find(named: str, rscript: str) -> Runtime:
    if not rscript:
        return _without(NO_SUCH.format(named) if named else f"R is not installed here; {HOW}")
    try:
        lines = _probe(rscript)
    except (OSError, subprocess.SubprocessError):
        return _without(f"{rscript} does not start; install R anew, {HOW}")
    packages = {line.split()[1] for line in lines if line.startswith("pkg ")}
    if "jsonlite" not in packages:
        return _without(f"R's package jsonlite, which comes with r-cran-irkernel, is missing here; {HOW}")
    places = [Path(line.removeprefix("lib ")) for line in lines if line.startswith("lib ")]
    return _runtime(rscript, lines, _outside(rscript, places))


def _with_fork_server(found: Runtime, rscript: str, settings: SandboxSettings) -> Runtime:
    """R is forked from within a Python; without one, or without R as a library, it is started each time."""
    python = find_python(settings)
    if not python.fork_argv:
        return found
    return replace(
        found,
        fork_argv=(*python.fork_argv, rscript),
        fork_mounts=(*python.fork_mounts, *found.mounts),
        digest=hashlib.sha256(f"{found.digest}{python.digest}".encode()).hexdigest(),
    )


def _runtime(rscript: str, known: list[str], places: list[Mount]) -> Runtime:
    drivers = [Mount(source, f"{INSIDE}/{source.name}") for source in _sources()]
    return Runtime(
        language="r",
        work_argv=argv(rscript, f"{INSIDE}/r_submission.R"),
        tests_argv=argv(rscript, f"{INSIDE}/r_tests.R"),
        mounts=(*drivers, *places),
        environ=ENVIRON,
        digest=_digest(known),
        packages=frozenset(line.split()[1] for line in known if line.startswith("pkg ")),
    )


def _without(problem: str) -> Runtime:
    return Runtime("r", (), (), (), {}, "", problem=problem)


def _probe(rscript: str) -> list[str]:
    """What R says about itself; raises OSError and SubprocessError."""
    # as in a sandbox: no settings of whoever starts this
    environ = {
        "PATH": os.environ.get("PATH", os.defpath),
        "LANG": "C.UTF-8",
        "HOME": "/nonexistent",
        **ENVIRON,
    }
    done = subprocess.run(
        [rscript, "--vanilla", "-e", _PROBE],
        check=True,
        capture_output=True,
        text=True,
        timeout=_PROBE_S,
        stdin=subprocess.DEVNULL,
        env=environ | ENVIRON,
    )
    lines = done.stdout.splitlines()
    if not lines or lines[-1] != "end":
        raise subprocess.SubprocessError("R did not come to the end")
    return lines


def _sources() -> list[Path]:
    return sorted(DRIVERS.glob("r_*.R"))


def _outside(rscript: str, places: list[Path]) -> list[Mount]:
    """R that does not lie below /usr, which every sandbox has, is seen at its own place."""
    wanted = [*places, Path(rscript).resolve().parent]
    return [
        Mount(place, str(place)) for place in dict.fromkeys(wanted) if place.is_dir() and not _in_usr(place)
    ]


def _in_usr(place: PurePath) -> bool:
    return place.is_relative_to("/usr")


def _digest(lines: list[str]) -> str:
    """SHA-256 over R, its packages and our drivers."""
    content = hashlib.sha256("\n".join(lines).encode())
    for source in _sources():
        content.update(source.name.encode() + b"\0" + source.read_bytes())
    return content.hexdigest()
