"""A group whose commands are imported when they run, so that help and completion are quick."""

from __future__ import annotations

import ast
import pkgutil
import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

Sections = Mapping[str, Mapping[str, str]]
"""Sections of help by their title; each maps a command's name to its place, `module:function`."""


class LazyGroup(click.Group):
    """Lists its commands in the sections that `sections` returns."""

    def __init__(self, *args: Any, sections: Callable[[], Sections], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.sections = sections

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All commands in the order of the sections."""
        return [*self._places()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name."""
        place = self._places().get(cmd_name)
        if place is None:
            return None
        command = pkgutil.resolve_name(place)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is meant; an unknown name is answered with the names that are like it."""
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            names = self.list_commands(ctx)
            raise click.NoSuchCommand(error.command_name, possibilities=names, ctx=ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section of help for each section of commands, in full."""
        for title, places in self.sections().items():
            with formatter.section(title):
                formatter.write_dl([(name, summary(place)) for name, place in places.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands and options that begin with `incomplete`."""
        found = [
            CompletionItem(name, help=summary(place))
            for name, place in self._places().items()
            if name.startswith(incomplete)
        ]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def _places(self) -> dict[str, str]:
        return {name: place for places in self.sections().values() for name, place in places.items()}


def summary(place: str) -> str:
    """The first line of a command's help, from the source of its module unless that is imported already."""
    module, _, function = place.partition(":")
    if module in sys.modules:
        return (pkgutil.resolve_name(place).help or "").partition("\n")[0]
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    for node in ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return (ast.get_docstring(node) or "").partition("\n")[0]
    return ""
