"""`grader bench`: finds the benchmarks by name, so that nothing outside `bench` imports them."""

from __future__ import annotations

import importlib

import click

BENCHMARKS = {
    "overhead": "bench.overhead",
    "router": "bench.router.command",
    "pages": "bench.pages.command",
    "engines": "bench.engines.command",
    "sandbox": "bench.sandbox",
}


class Benchmarks(click.Group):
    """Imports a benchmark when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All benchmarks in the order of the table."""
        return [*BENCHMARKS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The benchmark of that name."""
        if cmd_name not in BENCHMARKS:
            return None
        command = importlib.import_module(BENCHMARKS[cmd_name]).command
        assert isinstance(command, click.Command)
        return command


@click.group(cls=Benchmarks)
def bench() -> None:
    """Benchmarks."""
