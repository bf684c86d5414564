"""`grader`: the composition root. Commands are imported when they run, so that `grader --help` is quick."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import click

from cli.settings import Settings
from grading.domain import learning_platforms
from grading.domain.errors import GraderError

COMMANDS = {
    "up": "cli.commands.serve",
    "web": "cli.commands.serve",
    "worker": "cli.commands.serve",
    "prefill": "cli.commands.serve",
    "store": "cli.commands.serve",
    "sandbox": "cli.commands.serve",
    "sweep": "cli.commands.serve",
    "gateway": "cli.commands.serve",
    "demo": "cli.commands.demo",
    "submit": "cli.commands.submit",
    "assignment": "cli.commands.admin",
    "token": "cli.commands.admin",
    "user": "cli.commands.admin",
    "db": "cli.commands.admin",
    "machines": "cli.commands.machines",
    "plan": "cli.commands.plan",
    "doctor": "cli.doctor.command",
    "redis": "cli.commands.machines",
    "drain": "cli.commands.machines",
    "replay": "cli.commands.data",
    "webhook": "cli.commands.webhook",
    "bench": "cli.commands.bench",
    "backup": "cli.commands.data",
    "restore": "cli.commands.data",
    "retention": "cli.commands.data",
    "erase": "cli.commands.data",
    "export": "cli.commands.data",
    "cluster": "cli.deploy.cluster",
    "deploy": "cli.deploy.commands",
    "service": "cli.deploy.unit_command",
    "setup": "cli.setup.command",
}


class LazyGroup(click.Group):
    """Finds a command's module when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All commands in the order of the table."""
        return [*COMMANDS, *learning_platforms.LEARNING_PLATFORMS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name."""
        modules = COMMANDS | {name: f"cli.commands.{name}" for name in learning_platforms.LEARNING_PLATFORMS}
        if cmd_name not in modules:
            return None
        command = getattr(importlib.import_module(modules[cmd_name]), cmd_name)
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
