"""Receivers of events, deliveries to them, and secrets that verify messages of learning systems."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, Field

from app.api.fields import Line, Moment, RequestModel
from app.api.guards import allowed
from app.api.paging import Page, Paged, cut, number
from app.api.routes import Call, delete, get, post
from app.web.services import services
from grading.domain.errors import NotFound
from grading.domain.messages import define_message
from grading.store.integrations import webhooks

NO_SUCH_CONNECTION = define_message(
    "events_api.no_such_connection",
    "There is no connection '%(connection)s' in server.lms_connections of config.toml.",
)
DELIVERY = "/deliveries/<int:delivery_id>"


class Receiver(BaseModel):
    """A system that is told of events, and how that goes."""

    name: str = Field(description="as config.toml has it", examples=["lms"])
    configured: bool = Field(description="whether it is in config.toml now")
    url: str | None = Field(
        description="without its query; `null` where it is not configured",
        examples=["https://lms.example/grader-events"],
    )
    failures: int = Field(description="attempts that failed since the last one that did not", examples=[0])
    failing_since: datetime | None = Field(description="when the first of these failed", examples=[None])
    paused_at: datetime | None = Field(description="since then nothing is sent to it", examples=[None])
    waiting: int = Field(description="messages that wait for it", examples=[2])


class Receivers(BaseModel):
    """All receivers, by name."""

    items: list[Receiver] = Field(description="each receiver")


class Resumed(BaseModel):
    """Messages are sent to the receiver again."""

    receiver: str = Field(description="the receiver's name", examples=["lms"])
    waiting: int = Field(description="messages that are sent now", examples=[2])


class DeliveryFilter(Paged):
    """Which attempts a list shows."""

    receiver: Line | None = Field(default=None, description="the receiver's name")
    state: Literal["taken", "failed"] | None = Field(default=None, description="what came of it")
    since: Moment | None = Field(default=None, description="made at this moment or later")
    until: Moment | None = Field(default=None, description="made before this moment")


class DeliveryItem(BaseModel):
    """An attempt to send a message."""

    id: int = Field(description="its number", examples=[204])
    receiver: str = Field(description="the receiver's name", examples=["lms"])
    type: str = Field(description="of the event", examples=["grade.released"])
    attempt: int = Field(description="1 for the first one of a message", examples=[1])
    at: datetime = Field(description="when it was made")
    status: int | None = Field(description="of the answer; `null` where there was none", examples=[204])
    error: str = Field(description="why it failed; empty where it did not", examples=[""])


class Delivery(DeliveryItem):
    """An attempt with what was sent and answered."""

    message_id: str = Field(description="the same for all attempts of a message", examples=["msg_2c1f0c7e"])
    submission: str | None = Field(description="what the event is about", examples=["4f0c2d91"])
    url: str = Field(description="without its query", examples=["https://lms.example/grader-events"])
    headers: dict[str, str] = Field(
        description="as sent, without the signature",
        examples=[{"webhook-id": "msg_2c1f0c7e", "webhook-timestamp": "1795698000"}],
    )
    body: str = Field(description="what was sent", examples=['{"type": "grade.released"}'])
    answer: str = Field(description="the first 1,000 characters", examples=[""])
    seconds: float = Field(description="from the connection to the end of the answer", examples=[0.2])


class Resent(BaseModel):
    """The message is sent again, under its id."""

    receiver: str = Field(description="the receiver's name", examples=["lms"])
    message_id: str = Field(description="the id of the message", examples=["msg_2c1f0c7e"])


class WebhookSecret(BaseModel):
    """A secret that verifies messages of a learning system, without its value."""

    id: int = Field(description="its number", examples=[2])
    connection: str = Field(description="the learning system's name in config.toml", examples=["canvas"])
    created_at: datetime = Field(description="when it was made")
    created_by: str = Field(
        description="`user:` or `token:` and a number, or a command", examples=["user:17"]
    )
    ended_at: datetime | None = Field(description="since then it verifies nothing", examples=[None])


class WebhookSecrets(BaseModel):
    """All secrets that were made here, also those that have ended; not those of the environment."""

    connections: list[str] = Field(
        description="names of learning systems that are configured", examples=[["canvas"]]
    )
    items: list[WebhookSecret] = Field(description="each secret, without its value")


class SecretWanted(RequestModel):
    """For which learning system a secret is made."""

    connection: Annotated[str, Field(min_length=1, max_length=40, pattern=r"^[a-z0-9-]+$")] = Field(
        description="its name in `server.lms_connections` of config.toml", examples=["canvas"]
    )


class SecretMade(BaseModel):
    """A new secret."""

    id: int = Field(description="its number", examples=[2])
    connection: str = Field(description="the learning system's name in config.toml", examples=["canvas"])
    secret: str | None = Field(
        description="`null` where this was answered before, under the same key", examples=["whsec_…"]
    )


@get("/receivers", allowed("administer"))
def receivers(call: Call) -> Receivers:
    """The systems that are told of events, with what waits for them; for administrators."""
    urls = {one.name: one.url for one in services().config.server.event_receivers}
    known = {one.name for one in webhooks.list_receivers(call.session)}
    states = webhooks.list_receivers(call.session, sorted({*urls, *known}))
    return Receivers(items=[_receiver(one, urls.get(one.name)) for one in states])


@post("/receivers/<receiver>/resume", allowed("administer"))
def resume_receiver(call: Call, receiver: str) -> Resumed:
    """Send to a paused receiver again, at once; for administrators."""
    waiting = webhooks.resume_receiver(call.session, receiver[:40], call.actor.name)
    return Resumed(receiver=receiver, waiting=waiting)


@get("/deliveries", allowed("administer"))
def deliveries(call: Call, query: DeliveryFilter) -> Page[DeliveryItem]:
    """Attempts to send messages, the newest first; for administrators."""
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
    """An attempt: what was sent, and what came back; for administrators."""
    row = webhooks.load_delivery(call.session, delivery_id)
    names = set(Delivery.model_fields) - {"submission"}
    return Delivery(submission=row.submission_id, **{name: getattr(row, name) for name in names})


@post(f"{DELIVERY}/replay", allowed("administer"))
def replay_delivery(call: Call, delivery_id: int) -> Resent:
    """Send the message of an attempt again; for administrators."""
    row = webhooks.replay_delivery(call.session, delivery_id, call.actor.name)
    return Resent(receiver=row.receiver, message_id=row.message_id)


@get("/webhook-secrets", allowed("administer"))
def webhook_secrets(call: Call) -> WebhookSecrets:
    """The secrets that verify messages of learning systems, without their values; for administrators."""
    items = [WebhookSecret(**vars(one)) for one in webhooks.list_secrets(call.session)]
    return WebhookSecrets(connections=sorted(services().config.server.lms_connections), items=items)


@post("/webhook-secrets", allowed("administer"), status=201, errors=(404,), said_once=("secret",))
def create_webhook_secret(call: Call, body: SecretWanted) -> SecretMade:
    """Make a secret for a learning system, which has two at most; for administrators."""
    if body.connection not in services().config.server.lms_connections:
        raise NotFound(NO_SUCH_CONNECTION(connection=body.connection))
    key = services().secret_key
    made = webhooks.create_secret(call.session, body.connection, key, call.actor.name)
    call.headers["Location"] = "/api/v1/webhook-secrets"
    return SecretMade(id=made.id, connection=body.connection, secret=made.secret)


@delete("/webhook-secrets/<int:secret_id>", allowed("administer"))
def end_webhook_secret(call: Call, secret_id: int) -> None:
    """Let a secret verify nothing more, at once; for administrators."""
    webhooks.revoke_secret(call.session, secret_id, call.actor.name)


def _receiver(one: webhooks.ReceiverState, url: str | None) -> Receiver:
    shown = None if url is None else urlsplit(url)._replace(query="").geturl()
    return Receiver(**vars(one), configured=url is not None, url=shown)
