"""`grader doctor`: one list of what is well and what is not, with a remedy for each fault."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click

from cli.commands.serve import ENGINE, FOLDER, PORT
from cli.doctor.finding import Bounds, Finding, Installation, failure, ok
from cli.output import counted
from cli.settings import Settings, complete_machine, with_own_redis
from grading.config.settings import Config
from grading.domain.errors import ConfigError, GraderError

MARKS = {"ok": "✓", "warning": "!", "failure": "✗"}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@ENGINE
@FOLDER
@PORT
@click.option("--patience", type=click.FloatRange(0.1, 600), default=60, show_default=True,
              help="Longest wait for a model's token, in seconds.")  # fmt: skip
@click.option("--min-free-gb", type=click.FloatRange(0), default=5, show_default=True,
              help="Least free disk space, in GB.")  # fmt: skip
@click.option("--strategies", is_flag=True,
              help="Instead, machines measure whether their strategies pay.")  # fmt: skip
@click.option("--machine", "names", multiple=True, shell_complete=complete_machine,
              help="With --strategies: only this machine; repeatable.")  # fmt: skip
@click.option("--draft", metavar="MODEL", default="",
              help="With --strategies: a draft model to try with mlx models that have none.")  # fmt: skip
@click.pass_obj
def doctor(
    settings: Settings,
    as_json: bool,
    engine: str | None,
    folder: Path,
    port: int | None,
    patience: float,
    min_free_gb: float,
    strategies: bool,
    names: tuple[str, ...],
    draft: str,
) -> None:
    """Check configuration, services, machines and models.

    Each model is asked for a token; an Ollama server whose machine has nothing to do also gets as many
    requests of 16 tokens as the machine has slots, to see whether some wait.

    With --strategies, machines measure instead, one after the other and at most five minutes each, from which
    prompt length or batch on their strategies pay, and which to turn on. Students' work that
    comes breaks it off. Nothing is stored. `--draft` loads the model a second time, if there is room.

    Exits with status 1 if something does not work, and says how to fix it.
    """
    if strategies:
        from cli.doctor.strategies import compare_strategies

        config = _running(settings.with_engine(engine), folder, port)
        compare_strategies(config, names, draft, as_json)
        return
    if names or draft:
        raise click.UsageError("--machine and --draft go with --strategies.")
    _diagnose(settings, as_json, engine, folder, port, Bounds(patience_s=patience, free_gb=min_free_gb))


def _diagnose(
    settings: Settings, as_json: bool, engine: str | None, folder: Path, port: int | None, bounds: Bounds
) -> None:
    found = []
    for finding in examine(settings, engine, folder, port, bounds):
        found.append(finding)
        if not as_json:
            click.echo(f"{MARKS[finding.level]} {finding.check}: {finding.message}")
            if finding.remedy:
                click.echo(f"    → {finding.remedy}")
    counts = {level: sum(f.level == level for f in found) for level in MARKS}
    if as_json:
        rows = [asdict(finding) for finding in found]
        click.echo(json.dumps({"ok": not counts["failure"], "counts": counts, "findings": rows}, indent=2))
    if counts["failure"]:
        raise GraderError(
            f"{counted(counts['failure'], 'failure')}, {counted(counts['warning'], 'warning')}."
        )


def examine(
    settings: Settings, engine: str | None, folder: Path, port: int | None, bounds: Bounds
) -> Iterator[Finding]:
    """All findings, each as soon as it is known."""
    try:
        config = _running(settings.with_engine(engine), folder, port)
    except ConfigError as error:
        for line in error.message.splitlines():
            yield failure(
                "configuration_wrong",
                "configuration",
                line,
                "correct it; docs/reference/configuration.md lists every key",
            )
        return
    yield ok("configuration", f"{settings.path} is valid")
    from cli.doctor import broker, database, delivery, files, machines, server, sign_on

    installation = Installation(config, folder, os.environ, bounds)
    yield from server.secrets(installation)
    usable = False
    for finding in broker.diagnose(installation):
        usable = usable or finding.level == "ok"
        yield finding
    yield from database.diagnose(installation, redis=usable)
    yield from files.diagnose(installation)
    yield from delivery.diagnose_webhooks(installation)
    yield from server.disks(installation)
    yield from server.web(installation)
    yield from delivery.diagnose_mail(installation)
    yield from sign_on.diagnose(installation)
    yield from server.sandbox(installation)
    if usable:
        yield from server.parts(installation)
        yield from machines.diagnose(installation)


def _running(config: Config, folder: Path, port: int | None) -> Config:
    """The configuration as `grader up` with the same options runs it."""
    server = config.server.model_copy(update={"port": port or config.server.port})
    return with_own_redis(config, folder).model_copy(update={"server": server})
