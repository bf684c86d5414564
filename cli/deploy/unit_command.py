"""The command `grader service`: the unit or property list of a part on this computer."""

from __future__ import annotations

import getpass
import os
import sys
from pathlib import Path, PurePosixPath
from typing import cast

import click

from cli.deploy.services import PREFILL_GRACE_S
from cli.deploy.units import Kind, Service
from cli.settings import Settings

PARTS = {"web": 30.0, "store": 60.0, "sandbox": 30.0, "sweep": 30.0, "gateway": 30.0, "up": 120.0}
"""The parts of the server and the seconds they may take to end."""
KIND = click.Choice(["systemd", "launchd"])


@click.command()
@click.argument("name")
@click.option("--kind", type=KIND, help="Of which service manager; this computer's own otherwise.")
@click.option(
    "--env-file",
    type=click.Path(path_type=Path),
    help="The file with the secrets; /etc/grader.env for root, grader.env beside config.toml otherwise.",
)
@click.option("--user", help="Whom a service of the system runs as; for root.")
@click.option("--prefill", is_flag=True, help="Of a machine: what reads prompts for others, not its worker.")
@click.pass_obj
def service(
    settings: Settings, name: str, kind: str | None, env_file: Path | None, user: str | None, prefill: bool
) -> None:
    """Print the systemd unit or launchd property list of NAME: a part of the server, or a machine.

    Parts are web, store, sandbox, sweep, gateway and up.
    It names this environment, this config.toml and a file of secrets (GRADER_REDIS_URL='…' in each line),
    which must be readable by its owner only. For machines in reach of SSH, `grader deploy` does all of it.
    """
    show(settings, name, kind, env_file, user, prefill=prefill)


def show(
    settings: Settings,
    name: str,
    kind: str | None = None,
    env_file: Path | None = None,
    user: str | None = None,
    *,
    prefill: bool = False,
) -> None:
    """Print the unit or property list of a part on this computer; where to put it goes to standard error."""
    chosen = cast(Kind, kind or ("launchd" if sys.platform == "darwin" else "systemd"))
    one = _service(settings, name, env_file, user, os.getuid() == 0, prefill)
    click.echo((_systemd_help if chosen == "systemd" else _launchd_help)(one), err=True)
    click.echo(one.rendered(chosen), nl=False)


def _service(
    settings: Settings, name: str, env_file: Path | None, user: str | None, system: bool, prefill: bool
) -> Service:
    folder = settings.path.resolve().parent
    default = Path("/etc/grader.env") if system else folder / "grader.env"
    command = (sys.executable, "-m", "cli", "--config", str(settings.path.resolve()))
    words: tuple[str, ...]
    if name in PARTS:
        words, full, grace_s = (name,), name, PARTS[name]
    else:
        machine = settings.config.machine(name)
        words, full, grace_s = ("worker", name), f"worker-{name}", machine.grace_s
        if prefill:
            words, full, grace_s = ("prefill", name), f"prefill-{name}", PREFILL_GRACE_S
    return Service(
        name=full,
        command=(*command, *words),
        folder=PurePosixPath(Path(__file__).resolve().parents[2]),
        env_file=PurePosixPath((env_file or default).absolute()),
        grace_s=grace_s,
        log=PurePosixPath(folder / "var" / f"{full}.log"),
        environment={"PYTHONUNBUFFERED": "1"},
        system=system,
        user=(user or os.environ.get("SUDO_USER") or getpass.getuser()) if system else None,
    )


def _systemd_help(one: Service) -> str:
    unit = f"grader-{one.name}.service"
    where = "/etc/systemd/system" if one.system else "~/.config/systemd/user"
    scope = "" if one.system else " --user"
    linger = "" if one.system else "\n  loginctl enable-linger        # to run while nobody is signed in"
    return f"""This goes to {where}/{unit}. Then:
  systemctl{scope} daemon-reload && systemctl{scope} enable --now {unit}{linger}
{_secrets(one)}"""


def _launchd_help(one: Service) -> str:
    where = "/Library/LaunchDaemons" if one.system else "~/Library/LaunchAgents"
    domain = "system" if one.system else "gui/$(id -u)"
    plist = f"{where}/grader.{one.name}.plist"
    return f"""This goes to {plist}. Then:
  launchctl bootstrap {domain} {plist}
{_secrets(one)}"""


def _secrets(one: Service) -> str:
    names = "GRADER_REDIS_URL='rediss://…'"
    if one.name in PARTS:
        names += ", GRADER_DATABASE_URL, GRADER_SECRET_KEY"
    return f"Secrets stand in {one.env_file}, mode 0600, a line each: {names}\n"
