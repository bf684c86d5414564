"""`grader redis acl`: users for a Redis that several computers share."""

from __future__ import annotations

import os
import secrets

import click

from cli.settings import MIN_SECRET, Settings
from grading.errors import ConfigError
from grading.redis_url import on_loopback


@click.group()
def redis() -> None:
    """The Redis that server and machines share."""


@redis.command()
@click.option("--machine", "only", help="Only this machine's user.")
@click.pass_obj
def acl(settings: Settings, only: str | None) -> None:
    """Print users.acl: a user for the server and one a machine, each with the least it needs.

    Passwords come from GRADER_REDIS_PASSWORD_SERVER and GRADER_REDIS_PASSWORD_<MACHINE>, else they are made.
    users.acl holds their hashes only; each computer's GRADER_REDIS_URL goes to standard error, once.
    """
    from grading import redis_acl

    config = settings.config
    names = [config.machine(only).name] if only else [machine.name for machine in config.machines]
    users = {} if only else {redis_acl.SERVER: _password("server")}
    users |= {redis_acl.machine_user(name): _password(name) for name in names}
    for line in redis_acl.lines(config, users)[1 if only else 0 :]:
        click.echo(line)
    for user, password in users.items():
        click.echo(f"{user}: GRADER_REDIS_URL={redis_acl.url_of(config, user, password)}", err=True)
    if on_loopback(config.redis.url):
        click.echo("On the machines, put the server's address in the place of this computer's.", err=True)


def _password(name: str) -> str:
    variable = f"GRADER_REDIS_PASSWORD_{name.upper().replace('-', '_')}"
    given = os.environ.get(variable)
    if given is None:
        return secrets.token_urlsafe(32)
    if len(given) < MIN_SECRET:
        raise ConfigError(f"{variable}: needs at least {MIN_SECRET} characters.")
    return given
