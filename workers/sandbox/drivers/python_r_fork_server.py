"""R within the fork server's process: R itself cannot enter a sandbox, as it cannot call the kernel.

R's own `libR.so` is started as Rscript would start it, loads packages, and goes on in each fork with the
driver.
"""

from __future__ import annotations

TYPE_CHECKING = False  # the module typing takes a third of the start
if TYPE_CHECKING:
    from collections.abc import Callable

import ctypes
import json
import os
import subprocess
import sys
from ctypes import POINTER, c_char_p, c_int, c_void_p

_STARTED = "GRADER_R_IS_READY"
_ENVIRON = "e <- Sys.getenv(); cat(paste0(names(e), '=', e, '\\1'), sep = '')"
_LOAD = "local(for (p in c({})) try(suppressMessages(suppressWarnings(loadNamespace(p))), silent = TRUE))"
_ALWAYS = ("jsonlite", "parallel", "tools", "methods")
# The random numbers' state and the folder for temporary files are made anew, as in a new process.
_ANEW = "{ suppressWarnings(rm(list = '.Random.seed', envir = globalenv())); dir.create(tempdir()) }"
_DRIVER = (
    "(function() {{ options(grader.forks = TRUE); on.exit(options(grader.forks = NULL));"
    " eval(parse({}, keep.source = FALSE)) }})()"
)
DRIVERS = {"work": "/grader/r_submission.R", "tests": "/grader/r_tests.R"}


def prepared_r(rscript: str, kind: str, *packages: str) -> Callable[[], None]:
    """Start R and load packages, which are not attached."""
    _take_environment(rscript)
    r = R(DRIVERS[kind])
    names = ", ".join(json.dumps(name) for name in (*_ALWAYS, *packages))
    r.run(_LOAD.format(names))
    driver = r.kept(_DRIVER.format(json.dumps(DRIVERS[kind])))
    if driver is None:
        raise RuntimeError("R's driver could not be loaded")
    r.run("gc()")
    r.flush()
    return lambda: _run(r, driver)


def _take_environment(rscript: str) -> None:
    """What R's start script sets; libraries are looked for by that, so this program starts anew."""
    if os.environ.pop(_STARTED, None) is not None:
        return
    asked = [rscript, "--vanilla", "-e", _ENVIRON]
    said = subprocess.run(asked, check=True, capture_output=True, stdin=subprocess.DEVNULL).stdout
    found = dict(part.split("=", 1) for part in said.decode().split("\1") if "=" in part)
    found.pop("R_SESSION_TMPDIR", None)
    anew = [sys.executable, "-s", "-B", "-S", *sys.argv]
    os.execve(sys.executable, anew, {**found, _STARTED: "1"})  # noqa: S606


class R:
    """The R of this process. What it evaluates fails with True and not by an exception."""

    def __init__(self, driver: str) -> None:
        self._lib = lib = ctypes.PyDLL(os.path.join(os.environ["R_HOME"], "lib", "libR.so"))
        program = os.path.join(os.environ["R_HOME"], "bin", "exec", "R")
        words = [program, "--no-echo", "--no-restore", "--vanilla", f"--file={driver}"]
        arguments = (c_char_p * len(words))(*(word.encode() for word in words))
        lib.Rf_initialize_R(len(words), arguments)
        lib.setup_Rmainloop()
        lib.Rf_install.argtypes = lib.Rf_mkString.argtypes = [c_char_p]
        lib.Rf_lang2.argtypes = lib.Rf_lcons.argtypes = [c_void_p, c_void_p]
        lib.Rf_protect.argtypes = lib.R_PreserveObject.argtypes = [c_void_p]
        lib.R_tryEval.argtypes = [c_void_p, c_void_p, POINTER(c_int)]
        made = (lib.Rf_install, lib.Rf_mkString, lib.Rf_lang2, lib.Rf_lcons, lib.Rf_protect, lib.R_tryEval)
        for function in made:
            function.restype = c_void_p
        self._global = c_void_p.in_dll(lib, "R_GlobalEnv")
        self._nothing = c_void_p.in_dll(lib, "R_NilValue")

    def run(self, code: str) -> bool:
        """Evaluate an expression in the global environment; True when it failed."""
        return self._value(code) is None

    def kept(self, code: str) -> int | None:
        """The value of an expression, which stays; None when it failed."""
        value = self._value(code)
        if value is not None:
            self._lib.R_PreserveObject(value)
        return value

    def call(self, function: int) -> bool:
        """Call a function that was kept; True when it failed."""
        return self._evaluated(self._lib.Rf_protect(self._lib.Rf_lcons(function, self._nothing))) is None

    def _value(self, code: str) -> int | None:
        lib = self._lib
        text = lib.Rf_protect(lib.Rf_mkString(code.encode()))
        parsed = lib.Rf_protect(lib.Rf_lang2(lib.Rf_install(b"str2expression"), text))
        value = self._evaluated(lib.Rf_protect(lib.Rf_lang2(lib.Rf_install(b"eval"), parsed)))
        lib.Rf_unprotect(3)
        return value

    def _evaluated(self, call: int) -> int | None:
        failed = c_int(0)
        value: int = self._lib.R_tryEval(call, self._global, ctypes.byref(failed))
        return None if failed.value else value

    def flush(self) -> None:
        """What waits in buffers would be written by every fork."""
        ctypes.CDLL(None).fflush(None)


def _run(r: R, driver: int) -> None:
    _take_streams()
    failed = r.run(_ANEW) or r.call(driver)
    r.flush()
    os._exit(1 if failed else 0)


def _take_streams() -> None:
    """The talk moves to 3 and 4, what is printed goes to a file; as runtimes/r.py starts a new R."""
    os.dup2(0, 3)
    os.dup2(1, 4)
    folder = os.environ.get("TMPDIR", "/tmp")  # noqa: S108  # the sandbox's own
    kept = os.open(f"{folder}/printed.{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (kept, 1), (kept, 2)):
        os.dup2(source, target)
    os.close(nothing)
    os.close(kept)
