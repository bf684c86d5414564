"""`grader redis acl`: users for a Redis that several computers share."""

from __future__ import annotations

import os
import secrets

import click

from cli.settings import MIN_SECRET, Settings
from grading.config.redis_url import on_loopback
from grading.domain.errors import ConfigError

VARIABLE = "GRADER_REDIS_PASSWORD_SERVER"


@click.group()
def redis() -> None:
    """The Redis that server and machines share."""


@redis.command()
@click.option("--machine", "only", help="Only this machine's user.")
@click.pass_obj
def acl(settings: Settings, only: str | None) -> None:
    """Print users.acl: a user for the server and one a machine, each with the least it needs.

    The server's password comes from GRADER_REDIS_PASSWORD_SERVER or the server's GRADER_REDIS_URL, else it
    is made. Those of machines are made of it and of chance. users.acl holds their hashes only; each
    computer's GRADER_REDIS_URL goes to standard error, once.
    """
    from grading.broker import redis_security, signing

    config = settings.config
    names = [config.machine(only).name] if only else [machine.name for machine in config.machines]
    password = _password(config.redis.url, must_be_known=only is not None)
    keys = signing.Keyring(password, users=True)
    users = {} if only else {signing.SERVER: password}
    users |= {signing.machine_user(name): keys.machine_password(name) for name in names}
    for line in redis_security.lines(config, users)[1 if only else 0 :]:
        click.echo(line)
    for user, password in users.items():
        click.echo(f"{user}: GRADER_REDIS_URL={redis_security.url_of(config, user, password)}", err=True)
    if on_loopback(config.redis.url):
        click.echo("On the machines, put the server's address in the place of this computer's.", err=True)


def _password(url: str, *, must_be_known: bool) -> str:
    """The server's. That of a machine must be made of the one that the server has."""
    from grading.broker import signing

    given = os.environ.get(VARIABLE)
    if given is None:
        known = signing.keyring(url)
        if known.users:
            return known.password
        if must_be_known:
            raise ConfigError(
                "The password of one machine is made of the server's: set GRADER_REDIS_URL to the address of "
                f"its user '{signing.SERVER}', or {VARIABLE} to its password."
            )
        return secrets.token_urlsafe(32)
    if len(given) < MIN_SECRET:
        raise ConfigError(f"{VARIABLE}: needs at least {MIN_SECRET} characters.")
    return given
