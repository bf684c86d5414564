"""The commands that run the system or one part of it."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

import click

from cli.dev.supervisor import end_with_supervisor
from cli.logs import configure
from cli.settings import OWN_FOLDER, Settings, complete_machine, event_secrets, mail_password
from grading.broker import redis_acl
from grading.config.settings import Config
from grading.domain.errors import ConfigError
from grading.shared import telemetry

TRANSLATIONS = Path(__file__).parents[2] / "app" / "translations"
"""Letters say it in the words of the pages; their package is not loaded for that."""
ENGINE = click.option(
    "--engine",
    type=click.Choice(["rules", "instant"]),
    help="Replace the engine of every machine: rules (no model) or instant (benchmarks).",
)
FOLDER = click.option(
    "--var",
    "folder",
    type=click.Path(path_type=Path),
    default=OWN_FOLDER,
    show_default=True,
    help="Folder of generated secrets, the embedded Redis and process IDs.",
)
PORT = click.option("--port", type=click.IntRange(1, 65535), help="Override server.port.")


@click.command()
@PORT
@click.option("--host", help="Override server.host.")
@FOLDER
@click.pass_obj
def web(settings: Settings, port: int | None, host: str | None, folder: Path) -> None:
    """Run the web app: pages, API and webhooks."""
    from cli.servers.http import WebServer

    server = settings.config.server
    configure("web")
    end_with_supervisor(os.environ)
    redis_acl.refuse_open(settings.config.redis.url, needed=False)
    WebServer(_linked(settings.config, port), folder, host or server.host, port or server.port).run()


def _linked(config: Config, port: int | None) -> Config:
    """Links lead to where the app listens: on this computer only, another port is another address."""
    public = urlsplit(config.server.public_url)
    # https is a proxy's, whose port is its own
    if port is None or public.scheme == "https" or public.hostname not in ("localhost", "127.0.0.1"):
        return config
    server = config.server.model_copy(update={"public_url": f"http://localhost:{port}"})
    return config.model_copy(update={"server": server})


@click.command()
@click.argument("machine", shell_complete=complete_machine)
@ENGINE
@click.option("--grace", type=click.FloatRange(0, 3600), help="Override grace_s of the machine, in seconds.")
@click.option(
    "--service",
    type=click.Choice(["systemd", "launchd"]),
    help="Only print the unit or property list of this worker, as `grader service` does.",
)
@click.pass_obj
def worker(
    settings: Settings, machine: str, engine: str | None, grace: float | None, service: str | None
) -> None:
    """Run the worker of MACHINE, on that machine."""
    if service is not None:
        from cli.deploy.unit_command import show

        show(settings, settings.config.machine(machine).name, service)
        return
    from workers.machine.start import start

    configure("worker", machine)
    end_with_supervisor(os.environ)
    redis_acl.refuse_open(settings.config.redis.url)
    telemetry.start("worker", os.environ, machine)
    start(settings.with_engine(engine), machine, grace)


@click.command()
@click.argument("machine", shell_complete=complete_machine)
@click.pass_obj
def prefill(settings: Settings, machine: str) -> None:
    """Run the prefill server of MACHINE for hybrid engines."""
    try:
        from workers.machine.engines.remote_prefill.server import start
    except ModuleNotFoundError as error:
        raise ConfigError(f"The prefill server cannot be imported: {error}.") from error

    configure("prefill", machine)
    end_with_supervisor(os.environ)
    start(settings.config.machine(machine))


@click.command()
@click.pass_obj
def store(settings: Settings) -> None:
    """Run the worker that writes to the database."""
    from workers.server.tasks import start_store

    configure("store")
    end_with_supervisor(os.environ)
    redis_acl.refuse_open(settings.config.redis.url)
    telemetry.start("store", os.environ)
    start_store(settings.config)


@click.command()
@click.pass_obj
def sandbox(settings: Settings) -> None:
    """Run the worker that runs students' code in a sandbox."""
    from workers.sandbox.worker import start_sandbox_worker

    configure("sandbox")
    end_with_supervisor(os.environ)
    redis_acl.refuse_open(settings.config.redis.url)
    telemetry.start("sandbox", os.environ)
    start_sandbox_worker(settings.config)


@click.command()
@click.pass_obj
def sweep(settings: Settings) -> None:
    """Run the sweeper: recovery, dispatch and delivery."""
    from workers.server.tasks import start_sweeper

    configure("sweeper")
    end_with_supervisor(os.environ)
    redis_acl.refuse_open(settings.config.redis.url)
    telemetry.start("sweeper", os.environ)
    start_sweeper(
        settings.config,
        event_secrets(settings.config, os.environ),
        TRANSLATIONS,
        mail_password(settings.config, os.environ),
        os.environ,
    )


@click.command()
@click.option("--port", type=click.IntRange(1, 65535), help="Override gateway.port.")
@click.option("--host", help="Override gateway.host.")
@click.pass_obj
def gateway(settings: Settings, port: int | None, host: str | None) -> None:
    """Run the OpenAI-compatible gateway to the models.

    Grading has priority over the gateway's requests. It needs `enabled = true` under [gateway] of config.toml
    and API tokens with the scope chat.
    """
    from cli.servers.http import GatewayServer

    wanted = settings.config.gateway
    configure("gateway")
    end_with_supervisor(os.environ)
    redis_acl.refuse_open(settings.config.redis.url)
    GatewayServer(settings.config, host or wanted.host, port or wanted.port).run()


@click.command()
@ENGINE
@PORT
@FOLDER
@click.pass_obj
def up(settings: Settings, engine: str | None, port: int | None, folder: Path) -> None:
    """Run the whole system of config.toml on this machine.

    It restarts processes that end. It starts a Redis if redis.url is on loopback and nothing answers there.
    """
    from cli.dev.local_stack import System

    configure("up")
    with System(settings, engine=engine, port=port, folder=folder) as system:
        click.echo(f"Grader runs at {system.url}. Press Ctrl-C to stop it.")
        if system.key_notice:
            click.echo(system.key_notice)
        if system.first_password:
            click.echo(f"Sign in as 'admin' with the password {system.first_password}")
        system.wait()
