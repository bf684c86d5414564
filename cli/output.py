"""What commands print: counts in words, and progress on standard error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

Report = Callable[[int, int | None, str], None]
"""Told how much is done, of how much (None where that is unknown), and what is being done."""


def counted(number: int, noun: str) -> str:
    """A number with its noun, `1 run` or `2 runs`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


@contextmanager
def progress_bar(label: str) -> Iterator[Report]:
    """A bar on standard error until the context ends; nothing where that is no terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(
        *columns,
        console=console,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total, text: bar.update(task, completed=done, total=total, description=text)
