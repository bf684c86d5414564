"""Delivery of webhooks: sends events to every configured receiver until it accepts them.

An event becomes a row for each receiver, all in one transaction; each row has its own tries and waits in SQL.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy.exc import DBAPIError
from standardwebhooks import Webhook

from grading.broker.machine_status import span
from grading.config.settings import Config
from grading.domain.errors import ConfigError
from grading.integrations.events import Event, news
from grading.integrations.http_client import Answer, OutsideFailed, Refused, ask
from grading.store import outbox
from grading.store.away import why_away as why_sql_away
from grading.store.database import now
from grading.store.integrations import webhooks
from grading.store.integrations.webhooks import Attempt
from grading.store.outbox import Delivery
from workers.server.context import Server

log = logging.getLogger(__name__)
EVERY_S = 5.0
TIMEOUT_S = 15.0
LEASE_S = 60.0
RETRIES_S = (5.0, *(minutes * 60.0 for minutes in (5, 30, 120, 300, 600, 840, 1200, 1440)))
"""Waits between tries, as Standard Webhooks 1.0 has them: three days in all."""
FAN_OUT_AT_ONCE = 200
SEND_AT_ONCE = 100
IN_FLIGHT = 8
"""Messages to one receiver that wait for their answers at the same time."""
LEAST_SECRET = 24
"""Bytes a signing secret must have."""
GONE = 410
TESTS_AT_ONCE = 2
MOST_BODY = 20_000
"""Bytes of a message; it has links for the rest."""


@dataclass(frozen=True)
class Receiver:
    """Somebody who is told; `keys` sign every message, several during a rotation."""

    name: str
    url: str
    keys: tuple[bytes, ...] = field(repr=False)

    @property
    def kind(self) -> str:
        """The kind of the rows that wait for this receiver."""
        return f"to:{self.name}"

    @property
    def test_kind(self) -> str:
        """The kind of the rows of test messages."""
        return webhooks.test_kind(self.name)

    @property
    def mark(self) -> str:
        """The key under which it is noted that it wants no more; another address begins anew."""
        return f"{self.name}:{hashlib.sha256(self.url.encode()).hexdigest()[:16]}"


def receivers(config: Config, secrets: Mapping[str, Iterable[str]]) -> tuple[Receiver, ...]:
    """The receivers of the configuration with their secrets. Raises ConfigError for a secret of no use."""
    return tuple(
        Receiver(one.name, one.url, tuple(_key(one.name, secret) for secret in secrets[one.name]))
        for one in config.server.event_receivers
    )


def _key(name: str, secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix("whsec_") + "==")
    except (binascii.Error, ValueError):
        key = b""
    if len(key) < LEAST_SECRET:
        raise ConfigError(
            f"server.event_receivers: the secret of '{name}' must be whsec_ and the base64 of at least "
            f"{LEAST_SECRET} random bytes."
        )
    return key


@dataclass(frozen=True)
class Relay:
    """Sends events; any number of processes may do so at once."""

    server: Server
    receivers: tuple[Receiver, ...] = ()
    stop: threading.Event = field(default_factory=threading.Event)

    def relay(self) -> int:
        """One pass, one receiver after the other; returns how many messages were taken."""
        self.fan_out()
        return sum(self.send_tests(receiver) + self.deliver(receiver) for receiver in self.receivers)

    def start(self) -> list[threading.Thread]:
        """Pass every 5 s until `stop`; in a thread for each receiver, so that a slow one delays no other."""
        steps: list[tuple[str, Callable[[], object]]] = [("events", self.fan_out)]
        steps += [(one.kind, partial(self._serve, one)) for one in self.receivers]
        threads = [threading.Thread(target=self._run, args=(step,), name=name) for name, step in steps]
        for thread in threads:
            thread.start()
        return threads

    def _run(self, step: Callable[[], object]) -> None:
        while not self.stop.is_set():
            try:
                step()
            except DBAPIError as error:
                log.warning("%s, webhooks are sent later: %s", why_sql_away(error), error)
            except Exception:
                log.exception("sending webhooks failed, retrying")
            self.stop.wait(EVERY_S)

    def _serve(self, receiver: Receiver) -> None:
        self.send_tests(receiver)
        self.deliver(receiver)

    def fan_out(self) -> int:
        """Make a row for each receiver of each new event; an event nobody wants is done."""
        count = 0
        while not self.stop.is_set():
            with self.server.store.write() as session:
                events = outbox.claim(session, "event", FAN_OUT_AT_ONCE, LEASE_S)
                told = [one for one in self.receivers if not outbox.exists(session, "gone", one.mark)]
                for event in events:
                    for receiver in told:
                        outbox.add(session, receiver.kind, event.key, _message(event))
                    outbox.mark_done(session, event)
            count += len(events)
            if len(events) < FAN_OUT_AT_ONCE:
                break
        return count

    def deliver(self, receiver: Receiver) -> int:
        """Send what is due to one receiver: one message, and after its answer several at a time.

        Ends early while the receiver does not answer, and where it is left alone. Retries go first.
        """
        attempts: list[Attempt] = []
        sending: set[Future[Attempt]] = set()
        with ThreadPoolExecutor(IN_FLIGHT, receiver.kind) as pool:
            for _ in range(SEND_AT_ONCE):
                due = self._claim(receiver)
                if due is None:
                    break
                sending.add(pool.submit(self._try, receiver, *due))
                if attempts and len(sending) < IN_FLIGHT:
                    continue
                ended, sending = wait(sending, return_when=FIRST_COMPLETED)
                attempts += [one.result() for one in ended]
                if not all(attempt.status for attempt in attempts):
                    break
            attempts += [one.result() for one in sending]
        return sum(not attempt.error for attempt in attempts)

    def send_tests(self, receiver: Receiver) -> int:
        """Send the test messages to one receiver, each once; they change nothing of its failures or pause."""
        with self.server.store.write() as session:
            rows = outbox.claim(session, receiver.test_kind, TESTS_AT_ONCE, LEASE_S)
            moment = now(session)
        attempts = [(row, self._send(receiver, row, moment)) for row in rows]
        with self.server.store.write() as session:
            for row, attempt in attempts:
                webhooks.record_attempt(session, attempt)
                outbox.mark_done(session, row)
        return sum(not attempt.error for _, attempt in attempts)

    def _claim(self, receiver: Receiver) -> tuple[Delivery, datetime] | None:
        """The next message and the time; nothing where none is due or none may be sent."""
        if self.stop.is_set():
            return None
        with self.server.store.write() as session:
            if webhooks.is_paused(session, receiver.name, receiver.mark):
                return None
            rows = outbox.claim(session, receiver.kind, 1, LEASE_S, retries_first=True)
            return (rows[0], now(session)) if rows else None

    def _try(self, receiver: Receiver, row: Delivery, moment: datetime) -> Attempt:
        attempt = self._send(receiver, row, moment)
        self._write_down(receiver, row, attempt)
        return attempt

    def _send(self, receiver: Receiver, row: Delivery, moment: datetime) -> Attempt:
        """What was sent, the status of the answer if there was one, and what went wrong if anything did."""
        body = self._body(row)
        headers, signature = _headers(receiver, row, moment, body)
        kept = {**headers, **signature} if row.kind == receiver.test_kind else headers
        begun, answer, error = time.monotonic(), Answer(0, {}, b""), ""
        try:
            answer = ask(
                "POST",
                receiver.url,
                headers={**headers, **signature},
                body=body.encode(),
                timeout_s=TIMEOUT_S,
                most_bytes=4 * webhooks.MAX_ANSWER,
                allow=self.server.config.server.allowed,
                cut=True,
            )
            error = "" if 200 <= answer.status < 300 else f"answered {answer.status}"
        except (OutsideFailed, Refused) as failure:
            error = failure.message
        return Attempt(
            receiver=receiver.name,
            message_id=headers["webhook-id"],
            event=row.key,
            type=str(row.payload["type"]),
            submission_id=row.payload.get("submission"),
            attempt=row.tries,
            at=moment,
            seconds=round(time.monotonic() - begun, 3),
            url=urlsplit(receiver.url)._replace(query="").geturl(),
            headers=kept,
            body=body,
            status=answer.status or None,
            error=error,
            answer=answer.body,
        )

    def _body(self, row: Delivery) -> str:
        """What is said: no score and no name, only where to look."""
        kind, at = str(row.payload["type"]), datetime.fromisoformat(row.payload["at"])
        about = news(self.server.config.server.public_url, row.payload["submission"], kind.rpartition(".")[2])
        body = Event(type=kind, timestamp=at, data=about).model_dump_json()
        assert len(body) < MOST_BODY
        return body

    def _write_down(self, receiver: Receiver, row: Delivery, attempt: Attempt) -> None:
        retry_in_s = RETRIES_S[row.tries - 1] if row.tries <= len(RETRIES_S) else None
        paused = False
        with self.server.store.write() as session:
            webhooks.record_attempt(session, attempt)
            # the receiver's row before its messages', as whoever resumes it locks them
            if not attempt.error:
                webhooks.record_success(session, receiver.name, receiver.mark)
                outbox.mark_done(session, row)
            elif attempt.status == GONE:
                outbox.add(session, "gone", receiver.mark, {"url": receiver.url})
                outbox.fail_all(session, "gone", "answered 410: it wants no more messages")
                outbox.fail_all(session, receiver.kind, "answered 410")
            else:
                paused = webhooks.record_failure(session, receiver.name, receiver.mark)
                outbox.mark_failed(session, row, attempt.error, retry_in_s)
        _tell_log(receiver, row, attempt, retry_in_s, paused)


def _tell_log(
    receiver: Receiver, row: Delivery, attempt: Attempt, retry_in_s: float | None, paused: bool
) -> None:
    if attempt.status == GONE:
        log.error("receiver %s answered 410 Gone; no more webhooks are sent to this address", receiver.name)
    elif attempt.error:
        what = "no retries left" if retry_in_s is None else f"retry in {span(retry_in_s)}"
        log.warning("webhook %s to %s failed: %s; %s", row.key, receiver.name, attempt.error, what)
    if paused:
        log.error(
            "receiver %s accepted no webhook for two days and is paused: resume it on the page "
            "Deliveries or with `grader webhook resume %s`",
            receiver.name,
            receiver.name,
        )


def _message(event: Delivery) -> dict[str, Any]:
    """What a receiver's row holds; the id is made from the event, so that it is the same whoever sends."""
    number = hashlib.sha256(event.key.encode()).hexdigest()[:32]
    return {**event.payload, "id": f"msg_{number}", "at": event.created_at.isoformat(timespec="seconds")}


def _headers(
    receiver: Receiver, row: Delivery, moment: datetime, body: str
) -> tuple[dict[str, str], dict[str, str]]:
    """Those that may be kept, and the signature."""
    message_id = str(row.payload["id"])
    signatures = [Webhook(key).sign(message_id, moment, body) for key in receiver.keys]
    headers = {
        "webhook-id": message_id,
        "webhook-timestamp": str(int(moment.timestamp())),
        "Content-Type": "application/json",
        "User-Agent": "Grader",
    }
    return headers, {"webhook-signature": " ".join(signatures)}
