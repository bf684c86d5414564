"""`grader`: the composition root. Commands are imported when they run, so that `grader --help` is quick."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import click

from cli.settings import Settings
from grading.domain.errors import GraderError

COMMANDS = {
    "up": "cli.serve",
    "web": "cli.serve",
    "worker": "cli.serve",
    "prefill": "cli.serve",
    "store": "cli.serve",
    "checks": "cli.serve",
    "sweep": "cli.serve",
    "gateway": "cli.serve",
    "demo": "cli.demo",
    "submit": "cli.submit",
    "assignment": "cli.admin",
    "token": "cli.admin",
    "user": "cli.admin",
    "db": "cli.admin",
    "machines": "cli.machines",
    "plan": "cli.plan",
    "doctor": "cli.doctor",
    "redis": "cli.redis",
    "drain": "cli.drain",
    "replay": "cli.replay",
    "webhook": "cli.webhook",
    "bench": "cli.bench",
    "backup": "cli.backup",
    "restore": "cli.backup",
    "retention": "cli.privacy",
    "erase": "cli.privacy",
    "lti": "cli.lti",
    "canvas": "cli.canvas",
    "export": "cli.privacy",
    "cluster": "cli.cluster",
    "deploy": "cli.deploy",
    "service": "cli.service",
}


class LazyGroup(click.Group):
    """Finds a command's module when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All commands in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name."""
        if cmd_name not in COMMANDS:
            return None
        command = getattr(importlib.import_module(COMMANDS[cmd_name]), cmd_name)
        assert isinstance(command, click.Command)
        return command


@click.group(cls=LazyGroup)
@click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    envvar="GRADER_CONFIG",
    default="config.toml",
    show_default=True,
    help="The configuration of the cluster.",
)
@click.pass_context
def grader(context: click.Context, config_path: Path) -> None:
    """Grade homework with local language models, on a school's own machines."""
    context.obj = Settings(config_path)


def main() -> None:
    """Run a command; an expected error is one sentence and exit status 1."""
    try:
        grader(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(130)
    except GraderError as error:
        click.echo(f"grader: {error.message}", err=True)
        sys.exit(1)
