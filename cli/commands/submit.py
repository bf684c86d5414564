"""`grader submit`: submit files through the HTTP API and, if asked, wait for what came of it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from cli.output import progress_bar
from grader_client import Client, ClientError, Submission
from grading.domain.errors import GraderError


@contextmanager
def client_errors() -> Iterator[None]:
    """Say an error of the client as commands do. Raises GraderError."""
    try:
        yield
    except ClientError as error:
        raise GraderError(str(error)) from None


def client_from_environment(server: str) -> Client:
    """A client with the token of GRADER_TOKEN."""
    token = os.environ.get("GRADER_TOKEN")
    if not token:
        raise GraderError("GRADER_TOKEN is not set. Create an API token with `grader token create`.")
    return Client(server, token)


FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
SERVER = click.option(
    "--server",
    envvar="GRADER_SERVER",
    default="http://127.0.0.1:8080",
    show_default=True,
    help="Server URL.",
)


@click.command()
@click.argument("files", nargs=-1, required=True, type=FILE)
@click.option("--assignment", required=True, metavar="COURSE/SLUG", help="Assignment.")
@click.option("--student", required=True, metavar="ID", help="Sign-in name of the student.")
@click.option("--priority", type=click.Choice(["interactive", "batch"]), default="interactive",
              help="Queue; batch runs after all interactive work.")  # fmt: skip
@click.option("--wait", is_flag=True, help="Wait for the grade.")
@click.option("--timeout", default=900.0, show_default=True, help="Longest wait, in seconds.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@SERVER
def submit(
    files: tuple[Path, ...],
    assignment: str,
    student: str,
    priority: str,
    wait: bool,
    timeout: float,
    as_json: bool,
    server: str,
) -> None:
    """Submit FILES as one submission.

    GRADER_TOKEN must be an API token with the scope submit; --wait needs read, too.
    """
    client = client_from_environment(server)
    with client_errors():
        accepted = client.submit(files, assignment, student, priority=priority)
        view = _wait(client, accepted["id"], timeout) if wait else None
    sentence = _sentence(view) if view else f"{accepted['id']} {accepted['status']}"
    click.echo(json.dumps(view or accepted, indent=2) if as_json else sentence)
    if view and view["status"] != "graded":
        raise GraderError(f"Submission {view['id']} is {view['status']}, not graded.")


def _wait(client: Client, identifier: str, timeout_s: float) -> Submission:
    with progress_bar("received") as report:

        def show(view: Submission) -> None:
            stages = [stage["status"] for stage in view["stages"].values()]
            position = (view["queue"] or {}).get("position")
            text = f"{view['status']}, position {position}" if position else view["status"]
            report(stages.count("done"), len(stages) or None, text)

        return client.wait(identifier, timeout_s, show)


def _sentence(view: Submission) -> str:
    score = "score withheld" if view["score"] is None else f"{view['score']:g} of {view['max_score']:g}"
    flags = ", ".join(flag["code"] for flag in view["flags"])
    return f"{view['id']} {view['status']}: {score}" + (f" ({flags})" if flags else "")
