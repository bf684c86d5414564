"""Plays a document from its first cell to its last, each within its time, and tells what each showed."""

from __future__ import annotations

TYPE_CHECKING = False  # the module typing takes a third of the start
if TYPE_CHECKING:
    from typing import Any

import builtins

globals()["__builtins__"] = dict(vars(builtins))

import os
import sys
import time
import types

from python_common import (
    Clock,
    TooLong,
    clean,
    fault,
    line_of,
    missing_package,
    use_site,
)
from python_output import Capture, TooMuchOutput

_monotonic, _settrace, _setprofile = time.monotonic, sys.settrace, sys.setprofile
_getlimit, _setlimit = sys.getrecursionlimit, sys.setrecursionlimit
LEAST_DEPTH = 1000
"""Python's own recursion limit, which the driver needs too."""
_KB = 1024


class Outputs:
    """What one cell shows, in its order; `room` characters at most."""

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self.found: list[dict[str, Any]] = []
        self.room = capture.out.size

    def printed(self) -> None:
        """Moves what was printed up to now in."""
        self.capture.flush()
        self.collect()

    def collect(self) -> None:
        for text in self.capture.take():
            if text:
                self.found.append({"kind": "stream", "text": clean(text, len(text)), "image": False})

    def show(self, kind: str, text: str, image: bool = False) -> None:
        """A result or a display. Raises TooMuchOutput."""
        self.printed()
        text = clean(text, self.room + 1)
        self.room -= len(text)
        if self.room < 0 or len(self.found) > 10_000:
            raise TooMuchOutput
        self.found.append({"kind": kind, "text": text, "image": image})


class Player:
    """The work: its names, and its cells on their way."""

    def __init__(self, message: dict[str, Any], say: Any) -> None:
        self.work: dict[str, Any] = message["work"]
        self.say = say
        self.cell_s = float(message.get("cell_s", 30))
        self.room = int(message.get("output_kb", 512)) * _KB
        self.clock = Clock()
        self.told: set[str] = set()
        self.outputs: Any = None
        document = str(self.work.get("document") or "work.py")
        self.path = os.path.join(os.getcwd(), document)
        stem = os.path.splitext(os.path.basename(document))[0]
        notebook = self.work.get("kind") == "notebook"
        main = notebook or bool(message.get("as_main", True))
        self.module = types.ModuleType("__main__" if main else stem)
        sys.modules[self.module.__name__] = self.module
        self.space: dict[str, Any] = self.module.__dict__
        self.space["__builtins__"] = builtins
        self.runner: Any = None
        self._set_up(document, notebook)

    def _set_up(self, document: str, notebook: bool) -> None:
        """What a program finds around it when a person starts it."""
        sys.argv = [document]
        sys.path.insert(0, os.path.dirname(self.path))
        builtins.input = no_input
        os.environ.setdefault("MPLBACKEND", "Agg")
        if notebook and self.work.get("cells"):
            use_site()
            self.runner = _notebook(self)
        else:
            self.space["__file__"] = self.path
            self.runner = Script(self)

    def play(self) -> None:
        """Runs the prelude and every cell; a failing one does not stop the later ones."""
        prelude = str(self.work.get("prelude") or "")
        if prelude.strip():
            event = self._run({"number": -1, "source": prelude}, "<prelude>")
            if event["state"] != "ran":
                self.say(event)
        for cell in self.work.get("cells") or ():
            self.say(self._run(cell, self.path))

    def _run(self, cell: dict[str, Any], path: str) -> dict[str, Any]:
        capture = Capture(max(self.room, 2048))
        outputs = self.outputs = Outputs(capture)
        state, error, line = "ran", "", None
        begun = _monotonic()
        try:
            capture.begin()
            self.clock.start(self.cell_s)
            raised = self.runner.run(cell, path)
            if raised is not None:
                state, error, line = self._failed(raised)
            outputs.printed()
            self.clock.stop()
        except (TooLong, TooMuchOutput) as limit:
            self.clock.stop()
            state, error, line = self._failed(limit)
        if capture.full:
            state, error = "failed", "too much output"
        if _getlimit() < LEAST_DEPTH:
            _setlimit(LEAST_DEPTH)
        outputs.collect()
        self.room = max(self.room - capture.used, 0)
        self.outputs = None
        capture.end()
        return {
            "event": "cell",
            "number": cell["number"],
            "state": state,
            "outputs": outputs.found,
            "error": error,
            "line": line,
            "seconds": round(_monotonic() - begun, 4),
        }

    def _failed(self, error: BaseException) -> tuple[str, str, int | None]:
        """(state, one line, the cell's line)."""
        line = line_of(error, self.runner.is_cell)
        if isinstance(error, TooLong):
            return "too long", f"stopped after {self.cell_s:g} s", line
        if isinstance(error, TooMuchOutput):
            return "failed", "too much output", line
        if isinstance(error, SystemExit) and error.code in (None, 0):
            return "ran", "", None
        missing = missing_package(error)
        if missing and missing not in self.told:
            self.told.add(missing)
            self.say({"event": "missing", "package": missing})
        return "failed", fault(error), line


class Source:
    """Where tracebacks and `inspect` find the lines of a script, which may not be a file here."""

    def __init__(self, text: str) -> None:
        self.text = text

    def get_source(self, name: str) -> str:
        return self.text


class Script:
    """Plain execution; also of notebooks' cells where there is no IPython."""

    def __init__(self, player: Player, notebook: bool = False) -> None:
        self.player, self.notebook = player, notebook
        self.name = ""

    def is_cell(self, name: str) -> bool:
        """Whether a file name in a traceback is the cell's that runs."""
        return name == self.name

    def run(self, cell: dict[str, Any], path: str) -> BaseException | None:
        """Executes it; what it raises, other than a limit, is returned."""
        source = str(cell["source"])
        self.name = f"<cell {cell['number']}>" if self.notebook else path
        try:
            if self.notebook:
                self._cell(_without_magics(source))
            else:
                self.player.space["__loader__"] = Source(source)
                exec(compile(source, path, "exec", 0, True), self.player.space)
            _settrace(None)  # before another function is called: the work may have left something there
            _wait_for_threads()
        except (TooLong, TooMuchOutput):
            raise
        except BaseException as error:  # noqa: BLE001  # it is the work's
            return error
        finally:
            _settrace(None)
            _setprofile(None)
            if not self.notebook:
                self._pictures()
        return None

    def _cell(self, source: str) -> None:
        from python_evaluate import evaluate

        value = evaluate(source, self.player.space)
        if value is not None and not source.rstrip().endswith(";"):
            self.player.outputs.show("result", repr(value))

    def _pictures(self) -> None:
        """Figures that a script left open are what a person would have seen."""
        pyplot = sys.modules.get("matplotlib.pyplot")
        if pyplot is not None:
            for number in pyplot.get_fignums():
                self.player.outputs.show("display", str(pyplot.figure(number)), image=True)
            pyplot.close("all")


def _notebook(player: Player) -> Any:
    try:
        sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
        try:
            from python_notebook import Notebook
        finally:
            del sys.path[0]
        return Notebook(player)
    except ImportError:
        return Script(player, notebook=True)


def no_input(prompt: object = "") -> str:
    """Takes the place of `input`: nobody sits at the keyboard."""
    print(prompt, end="")  # noqa: T201
    raise EOFError("nobody can type here, so input() has no answer")


def _wait_for_threads() -> None:
    """A program ends when its threads do."""
    threading = sys.modules.get("threading")
    if threading is not None:
        for thread in threading.enumerate():
            if thread is not threading.main_thread() and not thread.daemon:
                thread.join()


def _without_magics(source: str) -> str:
    """Lines that only IPython understands become empty."""
    lines = source.split("\n")
    return "\n".join("pass" if line.startswith(("%", "!")) else line for line in lines)
