"""What is done on several machines at the same time: a row each, live on a terminal, lines elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from types import TracebackType

import click
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cli.tables import show, table
from grading.config.settings import Machine
from grading.domain.errors import GraderError


class Overview:
    """The step of each machine and what came of it; errors stand in full below."""

    def __init__(self, machines: Sequence[str], *, live: bool) -> None:
        self._rows = dict.fromkeys(machines, ("", ""))
        self._errors: dict[str, str] = {}
        self._lock = Lock()
        self._live = Live(self._table(), console=Console(), auto_refresh=False) if live else None

    def __enter__(self) -> Overview:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
        else:
            show(self._table())
        for message in self._errors.values():
            click.echo(f"✗ {message}", err=True)

    def begin(self, machine: str, step: str) -> None:
        """A machine is at a step."""
        self._set(machine, step, "…")

    def saying(self, machine: str) -> Callable[[str], None]:
        """Takes what a machine's step says while it works."""
        return lambda text: self._set(machine, self._rows[machine][0], text)

    def result(self, machine: str, text: str) -> None:
        """What came of a machine's step."""
        step = self._rows[machine][0]
        self._set(machine, step, text)
        if self._live is None:
            click.echo(f"{machine} {step}: {text}")

    def finish(self, machine: str, text: str) -> None:
        """What came of a machine in all."""
        self._set(machine, self._rows[machine][0], text)
        if self._live is None:
            click.echo(f"{machine}: {text}")

    def all_at_once(self, machines: Sequence[Machine], work: Callable[[Machine], None]) -> int:
        """Do something for all machines; how many failed."""

        def one(machine: Machine) -> None:
            try:
                work(machine)
            except GraderError as error:
                self._errors[machine.name] = error.message
                self.finish(machine.name, f"✗ {error.message.splitlines()[0]}")

        with ThreadPoolExecutor(len(machines)) as pool:
            list(pool.map(one, machines))
        return len(self._errors)

    def _set(self, machine: str, step: str, text: str) -> None:
        with self._lock:
            self._rows[machine] = (step, text)
            if self._live is not None:
                self._live.update(self._table(), refresh=True)

    def _table(self) -> Table:
        rows = table("machine", "step", "result")
        for name, (step, text) in self._rows.items():
            rows.add_row(name, step, Text(text))
        return rows
