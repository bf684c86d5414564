"""Tables of commands: nothing in them is ever cut."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

WIDEST = 10_000
"""Characters of a line where no terminal has to show it: a file or another program gets every row in one."""


def show(table: Table) -> None:
    """Print a table with every cell in full: folded in a terminal that is too narrow, else in one line."""
    console = Console()
    for column in table.columns:
        column.overflow, column.no_wrap = "fold", False
    Console(width=None if console.is_terminal else WIDEST).print(table, markup=False)
