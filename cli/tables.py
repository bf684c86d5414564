"""Tables of commands: nothing in them is ever cut."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

WIDEST = 10_000
"""Characters of a line where no terminal has to show it: a file or another program gets every row in one."""


def table(*headings: str, fold: Sequence[str] = (), title: str | None = None, gap: int = 2) -> Table:
    """A table whose last column and those named in `fold` give way in a narrow terminal."""
    made = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, title=title, title_justify="left")
    for heading in headings:
        narrow = heading in (*fold, headings[-1])
        made.add_column(heading, overflow="fold", no_wrap=not narrow)
    return made


def show(rows: Table) -> None:
    """Print a table with every cell in full: folded in a terminal that is too narrow, else in one line."""
    console = Console()
    Console(width=None if console.is_terminal else WIDEST).print(rows, markup=False)
