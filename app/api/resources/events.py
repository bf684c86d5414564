"""Receivers of events, deliveries to them, and secrets that verify messages of learning systems."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from urllib.parse import urlsplit

from flask import url_for
from pydantic import BaseModel, Field

from app.api.fields import Line, Moment, RequestModel
from app.api.guards import allowed
from app.api.paging import Page, Paged, cut, number
from app.api.routes import Call, delete, get, post
from app.web.services import services
from grading.domain.errors import NotFound
from grading.domain.messages import define_message
from grading.integrations.events import EVENTS, NO_SUCH_EVENT, NO_SUCH_RECEIVER, SUBMISSION
from grading.store.integrations import webhooks
from grading.store.tables import SentMessage

NO_SUCH_CONNECTION = define_message(
    "events_api.no_such_connection",
    "There is no connection '%(connection)s' in server.lms_connections of config.toml.",
)
DELIVERY = "/deliveries/<int:delivery_id>"
TESTS = "/receivers/<receiver>/tests"


class Receiver(BaseModel):
    """An event receiver and its deliveries."""

    name: str = Field(description="the name in config.toml", examples=["lms"])
    configured: bool = Field(description="whether config.toml still has it")
    url: str | None = Field(
        description="the URL without its query; `null` if it is not configured",
        examples=["https://lms.example/grader-events"],
    )
    failures: int = Field(description="failed attempts since the last successful one", examples=[0])
    failing_since: datetime | None = Field(
        description="when the first of these attempts failed", examples=[None]
    )
    paused_at: datetime | None = Field(description="when deliveries were paused", examples=[None])
    waiting: int = Field(description="queued messages", examples=[2])


class Receivers(BaseModel):
    """All event receivers, by name."""

    items: list[Receiver] = Field(description="the receivers")


class Resumed(BaseModel):
    """Deliveries to the receiver are resumed."""

    receiver: str = Field(description="the receiver's name", examples=["lms"])
    waiting: int = Field(description="messages that are sent now", examples=[2])


class DeliveryFilter(Paged):
    """Filters of the list."""

    receiver: Line | None = Field(default=None, description="the receiver's name")
    state: Literal["taken", "failed"] | None = Field(default=None, description="the result of the attempt")
    since: Moment | None = Field(default=None, description="made at or after this time")
    until: Moment | None = Field(default=None, description="made before this time")


class DeliveryItem(BaseModel):
    """An attempt to deliver a message."""

    id: int = Field(description="the ID", examples=[204])
    receiver: str = Field(description="the receiver's name", examples=["lms"])
    type: str = Field(description="the type of the event", examples=["grade.released"])
    attempt: int = Field(description="the number of the attempt for this message, from 1", examples=[1])
    at: datetime = Field(description="when it was made")
    status: int | None = Field(
        description="the HTTP status of the response; `null` without a response", examples=[204]
    )
    error: str = Field(description="why it failed; empty if it did not", examples=[""])


class Delivery(DeliveryItem):
    """An attempt with its request and response."""

    message_id: str = Field(
        description="the ID of the message, the same for all attempts", examples=["msg_2c1f0c7e"]
    )
    submission: str | None = Field(description="the subject of the event", examples=["4f0c2d91"])
    url: str = Field(description="the URL without its query", examples=["https://lms.example/grader-events"])
    headers: dict[str, str] = Field(
        description="the request headers, without the signature",
        examples=[{"webhook-id": "msg_2c1f0c7e", "webhook-timestamp": "1795698000"}],
    )
    body: str = Field(description="the request body", examples=['{"type": "grade.released"}'])
    answer: str = Field(description="the first 1,000 characters of the response body", examples=[""])
    seconds: float = Field(description="the time from connecting to the end of the response", examples=[0.2])


class TestWanted(RequestModel):
    """The event of the test message."""

    type: Line = Field(description="the type of the event", examples=["grade.released"])


class TestMessage(BaseModel):
    """A test message, and what the receiver answered."""

    receiver: str = Field(description="the receiver's name", examples=["lms"])
    type: str = Field(description="the type of the event", examples=["grade.released"])
    created_at: datetime = Field(description="when it was requested")
    url: str = Field(
        description="the URL of this answer; ask again until there is a delivery",
        examples=["/api/v1/receivers/lms/tests/test:4f0c2d914f0c2d914f0c2d914f0c2d91"],
    )
    delivery: Delivery | None = Field(description="the attempt to deliver it; `null` until it was made")


class Resent(BaseModel):
    """The message is sent again with the same ID."""

    receiver: str = Field(description="the receiver's name", examples=["lms"])
    message_id: str = Field(description="the ID of the message", examples=["msg_2c1f0c7e"])


class WebhookSecret(BaseModel):
    """A webhook secret, without its value."""

    id: int = Field(description="the ID", examples=[2])
    connection: str = Field(description="the name of the connection in config.toml", examples=["canvas"])
    created_at: datetime = Field(description="when it was made")
    created_by: str = Field(description="`user:` or `token:` with an ID, or a command", examples=["user:17"])
    ended_at: datetime | None = Field(description="when it was revoked", examples=[None])


class WebhookSecrets(BaseModel):
    """All webhook secrets created in Grader, including revoked ones, without those of the environment."""

    connections: list[str] = Field(description="names of the configured connections", examples=[["canvas"]])
    items: list[WebhookSecret] = Field(description="the secrets, without their values")


class SecretWanted(RequestModel):
    """The connection of the new secret."""

    connection: Annotated[str, Field(min_length=1, max_length=40, pattern=r"^[a-z0-9-]+$")] = Field(
        description="the name of the connection in `server.lms_connections` of config.toml",
        examples=["canvas"],
    )


class SecretMade(BaseModel):
    """A new secret."""

    id: int = Field(description="the ID", examples=[2])
    connection: str = Field(description="the name of the connection in config.toml", examples=["canvas"])
    secret: str | None = Field(
        description="`null` if this request was answered before with the same Idempotency-Key",
        examples=["whsec_…"],
    )


@get("/receivers", allowed("administer"))
def receivers(call: Call) -> Receivers:
    """List event receivers with their queued messages (administrators only)."""
    urls = {one.name: one.url for one in services().config.server.event_receivers}
    known = {one.name for one in webhooks.list_receivers(call.session)}
    states = webhooks.list_receivers(call.session, sorted({*urls, *known}))
    return Receivers(items=[_receiver(one, urls.get(one.name)) for one in states])


@post("/receivers/<receiver>/resume", allowed("administer"))
def resume_receiver(call: Call, receiver: str) -> Resumed:
    """Resume deliveries to a paused receiver (administrators only)."""
    waiting = webhooks.resume_receiver(call.session, receiver[:40], call.actor.name)
    return Resumed(receiver=receiver, waiting=waiting)


@post(TESTS, allowed("administer"), status=202, errors=(404,))
def send_test_message(call: Call, receiver: str, body: TestWanted) -> TestMessage:
    """Send the example of an event to a receiver once, also to a paused one (administrators only)."""
    if receiver not in {one.name for one in services().config.server.event_receivers}:
        raise NotFound(NO_SUCH_RECEIVER)
    if body.type not in EVENTS:
        raise NotFound(NO_SUCH_EVENT)
    key = webhooks.send_test(call.session, receiver, body.type, SUBMISSION, call.actor.name)
    made = _test(call, receiver, key)
    call.headers["Location"] = made.url
    return made


@get(f"{TESTS}/<key>", allowed("administer"))
def test_message(call: Call, receiver: str, key: str) -> TestMessage:
    """Get a test message and what the receiver answered (administrators only)."""
    return _test(call, receiver[:40], key[:100])


@get("/deliveries", allowed("administer"))
def deliveries(call: Call, query: DeliveryFilter) -> Page[DeliveryItem]:
    """List delivery attempts, newest first (administrators only)."""
    found = webhooks.list_deliveries_before(
        call.session,
        query.receiver or "",
        query.state or "",
        number(query),
        query.limit + 1,
        since=query.since,
        until=query.until,
    )
    items, address = cut(call, query, found, lambda one: (one.id,))
    return Page(items=[DeliveryItem(**vars(one)) for one in items], next=address)


@get(DELIVERY, allowed("administer"))
def delivery(call: Call, delivery_id: int) -> Delivery:
    """Get a delivery attempt with its request and response (administrators only)."""
    return _delivery(webhooks.load_delivery(call.session, delivery_id))


@post(f"{DELIVERY}/replay", allowed("administer"))
def replay_delivery(call: Call, delivery_id: int) -> Resent:
    """Resend the message of an attempt (administrators only)."""
    row = webhooks.replay_delivery(call.session, delivery_id, call.actor.name)
    return Resent(receiver=row.receiver, message_id=row.message_id)


@get("/webhook-secrets", allowed("administer"))
def webhook_secrets(call: Call) -> WebhookSecrets:
    """List webhook secrets, without their values (administrators only)."""
    items = [WebhookSecret(**vars(one)) for one in webhooks.list_secrets(call.session)]
    return WebhookSecrets(connections=sorted(services().config.server.lms_connections), items=items)


@post("/webhook-secrets", allowed("administer"), status=201, errors=(404,), said_once=("secret",))
def create_webhook_secret(call: Call, body: SecretWanted) -> SecretMade:
    """Create a webhook secret for a connection, at most two per connection (administrators only)."""
    if body.connection not in services().config.server.lms_connections:
        raise NotFound(NO_SUCH_CONNECTION(connection=body.connection))
    key = services().secret_key
    made = webhooks.create_secret(call.session, body.connection, key, call.actor.name)
    call.headers["Location"] = "/api/v1/webhook-secrets"
    return SecretMade(id=made.id, connection=body.connection, secret=made.secret)


@delete("/webhook-secrets/<int:secret_id>", allowed("administer"))
def end_webhook_secret(call: Call, secret_id: int) -> None:
    """Revoke a webhook secret immediately (administrators only)."""
    webhooks.revoke_secret(call.session, secret_id, call.actor.name)


def _test(call: Call, receiver: str, key: str) -> TestMessage:
    found = webhooks.load_test(call.session, receiver, key)
    return TestMessage(
        receiver=found.receiver,
        type=found.type,
        created_at=found.created_at,
        url=url_for("api.test_message", receiver=receiver, key=key),
        delivery=None if found.attempt is None else _delivery(found.attempt),
    )


def _delivery(row: SentMessage) -> Delivery:
    names = set(Delivery.model_fields) - {"submission"}
    return Delivery(submission=row.submission_id, **{name: getattr(row, name) for name in names})


def _receiver(one: webhooks.ReceiverState, url: str | None) -> Receiver:
    shown = None if url is None else urlsplit(url)._replace(query="").geturl()
    return Receiver(**vars(one), configured=url is not None, url=shown)
