"""Runs a file of unittest or pytest tests in a sandbox without the work, which they reach through the server.

Started as `python -s -B -S python_tests.py`; JSON lines on stdin and stdout are the conversation.
"""

from __future__ import annotations

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import ast
import builtins
import re
import tempfile
import time
import types
from typing import Any

from python_common import Clock, Line, TooLong, clean, needs_site, use_site
from python_proxy import Remote
from python_remote_objects import WorkModule

ALIASES = ("notebook", "work", "submission", "solution", "student")
"""Names under which tests may import the work, beside its own, as long as nothing else has them."""
ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+|(?<=\.\.\.)x?[0-9a-f]+(?=>)")
LINES = 6


class Tests:
    """The tests of one file on their way."""

    def __init__(self, message: dict[str, Any], line: Line) -> None:
        self.file: dict[str, Any] = message["file"]
        self.source = str(self.file["source"])
        self.seconds = float(self.file.get("seconds", 5.0))
        self.line = line
        self.clock = Clock()
        self.end = 0.0
        self.tree = ast.parse(self.source, "tests")
        self.folder = tempfile.mkdtemp()
        name = os.path.basename(str(self.file.get("path") or "test_work.py"))
        self.path = os.path.join(self.folder, name if name.endswith(".py") else f"{name}.py")
        with open(self.path, "w", encoding="utf-8") as file:
            file.write(self.source)
        self.remote = Remote(self.exchange)
        self._offer(str(message.get("module") or "work"))

    def exchange(self, body: dict[str, Any]) -> dict[str, Any]:
        """One call of the work by way of the server, which limits it; the test's own limit goes on."""
        ringing = self.clock.armed
        self.clock.stop()
        if ringing and time.monotonic() > self.end:
            raise TooLong
        try:
            self.line.write({"event": "remote", "body": body})
            while True:
                message = self.line.read()
                if message is None:
                    os._exit(0)
                if message.get("do") == "remote":
                    return dict(message.get("body") or {})
        finally:
            if ringing:
                self.clock.start(self.end - time.monotonic())

    def begin(self) -> None:
        """A test begins."""
        self.end = time.monotonic() + self.seconds
        self.clock.start(self.seconds)

    def _offer(self, module: str) -> None:
        """Puts the work where `import` finds it."""
        bound = {
            n.asname or n.name.partition(".")[0] for n in ast.walk(self.tree) if isinstance(n, ast.alias)
        }
        bound |= {n.name for n in ast.walk(self.tree) if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
        bound |= {
            n.id for n in ast.walk(self.tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        taken = frozenset(bound | set(dir(builtins)))
        work = WorkModule(module, self.remote, taken)
        names = {module, re.sub(r"\W", "_", module), module.rpartition(".")[2]}
        for name in names:
            sys.modules[name] = work
        for name in ALIASES:
            sys.modules.setdefault(name, work)

    def say(self, name: str, state: str, message: str = "") -> None:
        lines = [line.replace(self.folder + os.sep, "").rstrip() for line in message.strip().splitlines()]
        short = ADDRESS.sub("", "\n".join(line[:500] for line in lines if line))
        short = "\n".join(short.splitlines()[:LINES])
        event = {"event": "tested", "file": str(self.file.get("path", "")), "name": clean(name, 300)}
        self.line.write({**event, "state": state, "message": clean(short, 2000)})

    def needs_pytest(self) -> bool:
        """Whether unittest would not see all of its tests."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import) and any(a.name.partition(".")[0] == "pytest" for a in node.names):
                return True
            if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] == "pytest":
                return True
        plain = (ast.FunctionDef, ast.AsyncFunctionDef)
        return any(
            (isinstance(node, plain) and node.name.startswith("test"))
            or (isinstance(node, ast.ClassDef) and node.name.startswith("Test") and not node.bases)
            for node in self.tree.body
        )

    def run(self) -> None:
        """One event for each test."""
        if self.needs_pytest():
            use_site()
            try:
                from python_tests_pytest import run
            except ImportError:
                self.say(self.label(), "error", "pytest is not installed where the tests run")
                return
        else:
            from python_tests_unittest import run
        run(self)

    def label(self) -> str:
        """The name of the file."""
        return os.path.basename(str(self.file.get("path") or "tests"))

    def module(self) -> types.ModuleType:
        """The test file, imported."""
        name = os.path.splitext(os.path.basename(self.path))[0]
        module = types.ModuleType(name)
        module.__file__ = self.path
        sys.modules[name] = module
        exec(compile(self.source, self.path, "exec", 0, True), module.__dict__)
        return module


def serve() -> None:
    """Answers until the server says `end` or goes away."""
    line = Line.take_over()
    nothing = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for name in ("stdout", "stderr", "__stdout__", "__stderr__"):
        setattr(sys, name, nothing)
    needs_site()
    while True:
        message = line.read()
        if message is None or message.get("do") == "end":
            os._exit(0)
        if message.get("do") != "test":
            continue
        file = message.get("file") or {}
        name = os.path.basename(str(file.get("path") or "tests"))
        try:
            Tests(message, line).run()
        except SyntaxError as error:
            text = f"line {error.lineno}: {error.msg}"
            line.write(
                {
                    "event": "tested",
                    "file": file.get("path", ""),
                    "name": name,
                    "state": "error",
                    "message": text,
                }
            )
        except BaseException as error:  # noqa: BLE001  # the border: a test file that breaks has an answer
            text = clean(f"{type(error).__name__}: {error}", 500)
            line.write(
                {
                    "event": "tested",
                    "file": file.get("path", ""),
                    "name": name,
                    "state": "error",
                    "message": text,
                }
            )
        line.write({"event": "tests done"})


if __name__ == "__main__":
    serve()
