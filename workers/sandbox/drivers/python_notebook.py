"""Runs a notebook's cells in IPython's shell, the engine of Jupyter's Python kernel, in this process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Any

from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from python_common import TooLong
from python_output import TooMuchOutput
from traitlets import Any as AnyTrait
from traitlets.config import Config

_INSTALLS = re.compile(r"\s*(?:sudo\s+)?(?:\S*python\S*\s+-m\s+)?(?:pip3?|conda|mamba|uv|apt(?:-get)?)\b")
_PICTURES = ("image/", "application/vnd.plotly", "application/vnd.vega", "application/vnd.bokeh")


def _text(data: dict[str, Any]) -> str:
    return str(data.get("text/plain") or data.get("text/markdown") or data.get("text/html") or "")


def _is_picture(data: dict[str, Any]) -> bool:
    return any(str(kind).startswith(_PICTURES) for kind in data)


class Results(DisplayHook):
    """The value of a cell's last expression."""

    player: Any = AnyTrait()

    def start_displayhook(self) -> None:
        """Nothing goes before it."""

    def write_output_prompt(self) -> None:
        """There is no `Out[1]:`."""

    def write_format_data(self, format_dict: Any, md_dict: Any = None) -> None:
        """Keeps it as an output."""
        outputs = self.shell.player.outputs
        if outputs is not None:
            outputs.show("result", _text(format_dict), _is_picture(format_dict))

    def finish_displayhook(self) -> None:
        """Nothing goes after it."""


class Displays(DisplayPublisher):
    """What `display` shows, figures among it."""

    def publish(self, data: Any, metadata: Any = None, **_: Any) -> None:
        """Keeps it as an output."""
        outputs = self.shell.player.outputs
        if outputs is not None:
            outputs.show("display", _text(data), _is_picture(data))

    def clear_output(self, wait: bool = False) -> None:
        """What was shown stays shown."""


class Shell(InteractiveShell):
    """A shell without a terminal, history or network."""

    player: Any = AnyTrait()

    def enable_gui(self, gui: Any = None) -> None:
        """There are no windows."""

    def ask_exit(self) -> None:
        """`exit()` in a cell: the ones after it run all the same."""

    def _showtraceback(self, etype: Any, evalue: Any, stb: Any) -> None:
        """Errors are told as one line instead."""

    def system(self, cmd: str) -> None:
        """`!command`; installing something is left out, with a note."""
        command = self.var_expand(cmd, depth=1)
        if _INSTALLS.match(command):
            left_out(command)
            return
        sys.stdout.flush()
        done = subprocess.run(command, shell=True, check=False)  # noqa: S602  # in the sandbox
        self.user_ns["_exit_code"] = done.returncode

    system_piped = system_raw = system


def left_out(command: str) -> None:
    """A note where a notebook installs packages."""
    print(f"left out, nothing is installed here: {command.strip()[:200]}", file=sys.stderr)  # noqa: T201


class Notebook:
    """Cells in one shell."""

    def __init__(self, player: Any) -> None:
        os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
        os.environ.setdefault("IPYTHONDIR", "/tmp/ipython")  # noqa: S108  # private in the sandbox
        config = Config()
        config.HistoryManager.enabled = False
        config.InteractiveShell.colors = "nocolor"
        config.InteractiveShell.displayhook_class = Results
        config.InteractiveShell.display_pub_class = Displays
        config.InteractiveShell.xmode = "Minimal"
        hook = sys.displayhook
        self.shell = Shell.instance(
            config=config,
            user_module=player.module,
            displayhook_class=Results,
            display_pub_class=Displays,
            player=player,
        )
        sys.displayhook = hook
        player.space = self.shell.user_ns
        self.names: set[str] = set()
        cache = self.shell.compile.cache

        def remember(*arguments: Any, **named: Any) -> str:
            name = str(cache(*arguments, **named))
            self.names.add(name)
            return name

        self.shell.compile.cache = remember
        for magic in ("pip", "conda", "mamba", "micromamba", "uv"):
            self.shell.register_magic_function(left_out, "line", magic)

    def is_cell(self, name: str) -> bool:
        """Whether a file name in a traceback is the cell's that runs."""
        return name in self.names

    def run(self, cell: dict[str, Any], path: str) -> BaseException | None:
        """Executes it; what it raises, other than a limit, is returned."""
        self.names.clear()
        try:
            result = self.shell.run_cell(str(cell["source"]), store_history=True)
        except (TooLong, TooMuchOutput):
            raise
        except BaseException as error:  # noqa: BLE001  # it is the work's
            return error
        raised = result.error_before_exec or result.error_in_exec
        if isinstance(raised, (TooLong, TooMuchOutput)):
            raise raised
        return raised if isinstance(raised, BaseException) else None
