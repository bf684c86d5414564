"""`grader`: the composition root."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import click

from cli.lazy_group import LazyGroup, Sections
from cli.settings import Settings
from grading.domain import learning_platforms
from grading.domain.errors import GraderError


def sections() -> Sections:
    """The commands by the section of `grader --help` that lists them."""
    return {
        "Run": {
            "up": "cli.commands.serve:up",
            "demo": "cli.commands.demo:demo",
            "web": "cli.commands.serve:web",
            "store": "cli.commands.serve:store",
            "sandbox": "cli.commands.serve:sandbox",
            "sweep": "cli.commands.serve:sweep",
            "worker": "cli.commands.serve:worker",
            "prefill": "cli.commands.serve:prefill",
            "gateway": "cli.commands.serve:gateway",
        },
        "Course work": {
            "submit": "cli.commands.submit:submit",
            "assignment": "cli.commands.admin:assignment",
            "replay": "cli.commands.data:replay",
            "trust": "cli.commands.trust:trust",
        },
        "Machines": {
            "machines": "cli.commands.machines:machines",
            "accept-models": "cli.commands.machines:accept_models",
            "drain": "cli.commands.machines:drain",
            "plan": "cli.commands.plan:plan",
            "deploy": "cli.deploy.commands:deploy",
            "cluster": "cli.deploy.cluster:cluster",
            "redis": "cli.commands.machines:redis",
        },
        "Data": {
            "backup": "cli.commands.data:backup",
            "restore": "cli.commands.data:restore",
            "db": "cli.commands.admin:db",
            "files": "cli.commands.files:files",
            "retention": "cli.commands.data:retention",
            "export": "cli.commands.data:export",
            "erase": "cli.commands.data:erase",
        },
        "Integrations": {
            **{name: f"cli.commands.{name}:{name}" for name in learning_platforms.LEARNING_PLATFORMS},
            "webhook": "cli.commands.webhook:webhook",
        },
        "Administration": {
            "setup": "cli.setup.command:setup",
            "service": "cli.deploy.unit_command:service",
            "doctor": "cli.doctor.command:doctor",
            "rehearse": "cli.commands.rehearse:rehearse",
            "user": "cli.commands.admin:user",
            "token": "cli.commands.admin:token",
            "bench": "cli.commands.bench:bench",
        },
    }


COMPLETION = """\b
Complete commands, options and machines with the Tab key:
  eval "$(_GRADER_COMPLETE=bash_source grader)"   # in ~/.bashrc
  eval "$(_GRADER_COMPLETE=zsh_source grader)"    # in ~/.zshrc
"""


@click.group(cls=LazyGroup, sections=sections, epilog=COMPLETION)
@click.version_option(package_name="grader")
@click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    envvar="GRADER_CONFIG",
    default="config.toml",
    show_default=True,
    help="Configuration file.",
)
@click.pass_context
def grader(context: click.Context, config_path: Path) -> None:
    """Grade homework with local language models, on a school's own machines."""
    context.obj = Settings(config_path)


YOUNG = 50_000
"""Objects after which the collector looks for cycles; a page makes some thousands, of which none stays."""


def main() -> None:
    """Run a command; an expected error is one sentence and exit status 1."""
    gc.set_threshold(YOUNG)  # modules stay: to look for garbage among them is a tenth of a start
    try:
        grader(standalone_mode=False, prog_name="grader")
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(130)
    except GraderError as error:
        click.echo(f"grader: {error.message}", err=True)
        sys.exit(1)
