"""The command `grader service`: the unit or property list of a part on this computer."""

from __future__ import annotations

import os
import sys
from pathlib import Path, PurePosixPath
from typing import cast

import click

from cli.deploy.services import PREFILL_GRACE_S
from cli.deploy.units import SANDBOX_ACCOUNT, SERVER_ACCOUNT, Kind, Service, Work
from cli.settings import Settings, complete_machine

WORK: dict[str, Work] = {
    **dict.fromkeys(("web", "store", "sweep", "gateway"), "server"),
    **dict.fromkeys(("sandbox", "up"), "sandbox"),
}
PARTS = {"web": 30.0, "store": 60.0, "sandbox": 30.0, "sweep": 30.0, "gateway": 30.0, "up": 120.0}
"""The parts of the server and the seconds they may take to end."""
KIND = click.Choice(["systemd", "launchd"])


def complete_name(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The parts and machines that begin with `incomplete`, for completion in a shell."""
    parts = [name for name in PARTS if name.startswith(incomplete)]
    return parts + complete_machine(context, parameter, incomplete)


@click.command()
@click.argument("name", shell_complete=complete_name)
@click.option("--kind", type=KIND, help="Service manager; this computer's own by default.")
@click.option(
    "--env-file",
    type=click.Path(path_type=Path),
    help="File with the secrets. By default /etc/grader/grader.env (sandbox.env for sandbox) for root, else "
    "grader.env beside config.toml.",
)
@click.option("--user", help="User of a system service; by default grader, or grader-sandbox for sandbox.")
@click.option("--prefill", is_flag=True, help="Of a machine: its prefill server instead of its worker.")
@click.pass_obj
def service(
    settings: Settings, name: str, kind: str | None, env_file: Path | None, user: str | None, prefill: bool
) -> None:
    """Print the systemd unit or launchd property list of NAME.

    NAME is web, store, sandbox, sweep, gateway, up or a machine. The unit uses this environment, this
    config.toml and a file of secrets with lines such as GRADER_REDIS_URL='…'. For machines with SSH,
    `grader deploy` does all of it.
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
    one = described(settings, name, env_file, user, system=os.getuid() == 0, prefill=prefill)
    click.echo((_systemd_help if chosen == "systemd" else _launchd_help)(one), err=True)
    click.echo(one.rendered(chosen), nl=False)


def described(
    settings: Settings,
    name: str,
    env_file: Path | None = None,
    user: str | None = None,
    *,
    system: bool,
    prefill: bool = False,
) -> Service:
    """A part on this computer as a service; of the system, or of who asks."""
    work = WORK.get(name, "models")
    root = PurePosixPath(Path(__file__).resolve().parents[2])
    folder = settings.path.resolve().parent
    account = SANDBOX_ACCOUNT if name == "sandbox" else SERVER_ACCOUNT
    default = Path(account.env_file) if system else folder / "grader.env"
    command = (sys.executable, "-m", "cli", "--config", str(settings.path.resolve()))
    full, words, grace_s = _part(settings, name, prefill)
    return Service(
        name=full,
        command=(*command, *words),
        folder=root,
        env_file=PurePosixPath((env_file or default).absolute()),
        grace_s=grace_s,
        log=PurePosixPath(folder / "var" / f"{full}.log"),
        environment={"PYTHONUNBUFFERED": "1"},
        system=system,
        user=(user or account.name) if system else None,
        work=work,
        writes=_writes(settings, root, name),
    )


def _part(settings: Settings, name: str, prefill: bool) -> tuple[str, tuple[str, ...], float]:
    """The full name of a part, its words for `grader`, and the seconds it may take to end."""
    if name in PARTS:
        drain_s = settings.config.server.drain_s if name == "web" else 0.0
        return name, (name,), PARTS[name] + drain_s
    machine = settings.config.machine(name)
    if prefill:
        return f"prefill-{name}", ("prefill", name), PREFILL_GRACE_S
    return f"worker-{name}", ("worker", name), machine.grace_s


def _writes(settings: Settings, root: PurePosixPath, name: str) -> tuple[PurePosixPath, ...]:
    """The folder of logs and generated keys; that of the database where it is a file."""
    folders = [] if name == "sandbox" else [root / "var"]
    kind, _, path = settings.config.database.url.partition(":///")
    if kind.startswith("sqlite") and name in PARTS:
        folders.append((root / path).parent)
    return tuple(dict.fromkeys(folders))


def _systemd_help(one: Service) -> str:
    unit = f"grader-{one.name}.service"
    where = "/etc/systemd/system" if one.system else "~/.config/systemd/user"
    scope = "" if one.system else " --user"
    linger = "" if one.system else "\n  loginctl enable-linger        # to run while nobody is signed in"
    return f"""Save it as {where}/{unit}. Then run:
  systemctl{scope} daemon-reload && systemctl{scope} enable --now {unit}{linger}
{_secrets(one)}"""


def _launchd_help(one: Service) -> str:
    where = "/Library/LaunchDaemons" if one.system else "~/Library/LaunchAgents"
    domain = "system" if one.system else "gui/$(id -u)"
    plist = f"{where}/grader.{one.name}.plist"
    return f"""Save it as {plist}. Then run:
  launchctl bootstrap {domain} {plist}
{_secrets(one)}"""


def _secrets(one: Service) -> str:
    names = "GRADER_REDIS_URL='rediss://…'"
    if one.name in PARTS:
        names += ", GRADER_DATABASE_URL"
    if one.work == "server" or one.name == "up":
        names += ", GRADER_SECRET_KEY"
    reader = f"root and group {one.user}, mode 0640" if one.system else "its owner, mode 0600"
    return f"Write the secrets to {one.env_file}, readable by {reader}, one per line: {names}\n"
