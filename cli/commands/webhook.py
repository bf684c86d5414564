"""`grader webhook`: secrets and receivers of events, with a test receiver for one's own computer."""

from __future__ import annotations

import base64
import binascii
import json
import os
import secrets
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

import click
from standardwebhooks import Webhook, WebhookVerificationError

from cli.commands.admin import writing
from cli.commands.serve import FOLDER
from cli.settings import Settings, lms_secrets, secret_key
from grading.domain.errors import GraderError, NotFound
from grading.integrations.events import EXAMPLES, INWARD
from grading.integrations.http_client import Allowed, ask
from grading.store.integrations import webhooks

LARGEST = 1_000_000
"""Bytes of a message that are read."""


class Listener:
    """Listens on loopback from `__enter__` to `__exit__`."""

    def __init__(self, port: int, secret: str, answer: int, say: Callable[[str], object]) -> None:
        self._secret, self._answer, self._say = secret, answer, say
        self._came = threading.Semaphore(0)
        self._server = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/events"

    def __enter__(self) -> Listener:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def wait(self, count: int | None) -> None:
        """Until so many messages came; without a number for ever."""
        while count is None or count > 0:
            self._came.acquire()
            count = None if count is None else count - 1

    def heard(self, headers: dict[str, str], body: bytes) -> str:
        """What is printed of a message."""
        try:
            Webhook(self._secret).verify(body, headers, json_parse=False)
            word = "verified"
        except (WebhookVerificationError, ValueError, binascii.Error, OverflowError, TypeError) as error:
            word = f"not verified ({type(error).__name__})"
        try:
            text = json.dumps(json.loads(body), indent=2, ensure_ascii=True)
        except ValueError:
            text = repr(body[:2000])
        return f"{headers.get('webhook-id', '–')!r}: {word}, answered {self._answer}\n{text}\n"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        listener = self

        class Handler(BaseHTTPRequestHandler):
            timeout = 30

            def do_POST(self) -> None:  # the name is that of the library
                length = self.headers.get("Content-Length") or ""
                body = self.rfile.read(min(int(length), LARGEST)) if length.isdecimal() else b""
                headers = {name.lower(): value for name, value in self.headers.items()}
                listener._say(listener.heard(headers, body))
                self.send_response(listener._answer)
                self.send_header("Content-Length", "0")
                self.end_headers()
                listener._came.release()

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        return Handler


BY = "cli"


@click.group()
def webhook() -> None:
    """Manage and test webhooks of learning systems."""


@webhook.group()
def secret() -> None:
    """Manage signing secrets of learning systems."""


@secret.command("add")
@click.argument("connection")
@FOLDER
@click.pass_obj
def add_secret(settings: Settings, connection: str, folder: Path) -> None:
    """Create a secret for CONNECTION and print it, once only.

    CONNECTION is one of server.lms_connections in config.toml. Earlier secrets stay valid.
    """
    _require_known(settings, connection)
    key = secret_key(folder)
    with writing(settings) as session:
        made = webhooks.create_secret(session, connection, key, BY)
    click.echo(made.secret)
    click.echo(
        f"Secret {made.id} of '{connection}' is valid now and is not shown again. Enter it in the learning "
        "system, then revoke the old one: grader webhook secret end NUMBER",
        err=True,
    )


@secret.command("list")
@click.pass_obj
def list_secrets(settings: Settings) -> None:
    """List secrets, without their values."""
    with writing(settings) as session:
        lines = webhooks.list_secrets(session)
    for line in lines:
        until = f"revoked {line.ended_at:%Y-%m-%d %H:%M} UTC" if line.ended_at else "valid"
        made = f"created {line.created_at:%Y-%m-%d %H:%M} UTC by {line.created_by}"
        click.echo(f"{line.id}  {line.connection}  {until}  {made}")
    for name in settings.config.server.lms_connections:
        count = len(lms_secrets(settings.config, os.environ).get(name, ()))
        if count:
            click.echo(f"–  {name}  {count} from the environment of this command")
    if not lines:
        click.echo("There are no secrets. Create one: grader webhook secret add CONNECTION")


@secret.command("end")
@click.argument("number", type=click.IntRange(1, 2**31 - 1))
@click.pass_obj
def end_secret(settings: Settings, number: int) -> None:
    """Revoke the secret NUMBER."""
    with writing(settings) as session:
        connection = webhooks.revoke_secret(session, number, BY)
    click.echo(f"Revoked secret {number} of '{connection}'.")


@webhook.command()
@click.argument("receiver")
@click.pass_obj
def resume(settings: Settings, receiver: str) -> None:
    """Resume sending events to a paused RECEIVER."""
    with writing(settings) as session:
        count = webhooks.resume_receiver(session, receiver, BY)
    click.echo(f"{receiver} receives events again. {count} queued events are sent now.")


@webhook.command()
@click.option("--port", type=click.IntRange(0, 65535), default=8099, show_default=True, help="Port.")
@click.option("--secret", "given", help="Signing secret of the sender; generated by default.")
@click.option("--answer", type=click.IntRange(200, 599), default=204, show_default=True,
              help="HTTP status of all answers.")  # fmt: skip
@click.option("--count", type=click.IntRange(1), help="Stop after this many messages.")
def listen(port: int, given: str | None, answer: int, count: int | None) -> None:
    """Run a test receiver that verifies and prints events."""
    from cli.commands.webhook import Listener

    given = given or "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()
    with Listener(port, given, answer, click.echo) as listener:
        click.echo(f"Listening at {listener.url}, answering {answer}. Press Ctrl-C to stop.")
        click.echo("In config.toml:\n")
        click.echo('[server]\noutside_allowed = ["127.0.0.1/32"]\n\n[[server.event_receivers]]')
        click.echo(f'name = "try"\nurl = "{listener.url}"\n')
        click.echo(
            f"In the environment of `grader sweep` or `grader up`:\n\nGRADER_EVENTS_TRY_SECRET={given}\n"
        )
        listener.wait(count)


@webhook.command()
@click.argument("connection")
@click.option(
    "--type", "kind", type=click.Choice(list(INWARD)), default="submission.created", show_default=True,
    help="Type of the message.",
)  # fmt: skip
@click.option("--data", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="JSON file with `data` of the message; the documented example by default.")  # fmt: skip
@click.option("--secret", "given", help="Signing secret; GRADER_LMS_<CONNECTION>_SECRET by default.")
@click.option("--id", "message_id", help="ID of the message (webhook-id); each is accepted once.")
@click.option("--url", help="URL of Grader; this computer and server.port by default.")
@click.pass_obj
def send(
    settings: Settings, connection: str, kind: str, data: Path | None, given: str | None,
    message_id: str | None, url: str | None,
) -> None:  # fmt: skip
    """Send a signed test message as the learning system CONNECTION."""
    from standardwebhooks import Webhook

    body = json.dumps({"type": kind, "data": _data(kind, data)}).encode()
    signed_with = given or next(iter(lms_secrets(settings.config, os.environ).get(connection, ())), None)
    if signed_with is None:
        raise NotFound(
            f"There is no signing secret for '{connection}'. Use --secret or set it in the environment."
        )
    name, moment = message_id or f"msg_{secrets.token_hex(16)}", datetime.now(UTC)
    headers = {
        "webhook-id": name,
        "webhook-timestamp": str(int(moment.timestamp())),
        "webhook-signature": Webhook(signed_with).sign(name, moment, body.decode()),
        "Content-Type": "application/json",
    }
    base = (url or f"http://127.0.0.1:{settings.config.server.port}").rstrip("/")
    # whoever types this command may speak to any address
    everywhere = Allowed.of(["0.0.0.0/0", "::/0"])
    answer = ask("POST", f"{base}/webhooks/lms/{connection}", headers=headers, body=body, allow=everywhere)
    click.echo(f"{name}: {answer.status}\n{answer.body.decode('utf-8', 'replace')}")
    if not 200 <= answer.status < 300:
        raise GraderError("Grader refused the message.")


def _data(kind: str, path: Path | None) -> Mapping[str, Any]:
    if path is None:
        return EXAMPLES[kind][0]
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise GraderError(f"{path} is not JSON: {error}.") from None
    if not isinstance(data, dict):
        raise GraderError(f"{path}: write a JSON object, the `data` of the message.")
    return data


def _require_known(settings: Settings, connection: str) -> None:
    connections = settings.config.server.lms_connections
    if connection not in connections:
        has = ", ".join(connections) or "none"
        raise NotFound(
            f"There is no connection '{connection}'. server.lms_connections in config.toml has: {has}."
        )
