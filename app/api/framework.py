"""Flask views of the API's routes: permission, parsing, one transaction, idempotency keys."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, cast

from flask import Response, after_this_request, current_app, jsonify, request
from pydantic import BaseModel
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from app.api import etags
from app.api.fields import MOST_NUMBER
from app.api.routes import Call, Deprecation, Route
from app.web import auth, parsing
from app.web.parsing import InvalidField
from app.web.services import services
from grading.domain.errors import Conflict, NotFound
from grading.domain.messages import define_message
from grading.domain.permissions import Actor
from grading.store import idempotency_keys
from grading.store.idempotency_keys import Idempotency

IDEMPOTENCY_KEY_FORM = define_message(
    "api.idempotency_key_form", "Idempotency-Key: use 1 to %(most)s printable ASCII characters."
)
NO_SUCH_NUMBER = define_message("api.no_such_number", "Nothing with this ID exists.")

LONGEST_KEY = 200


class StillDoing(Conflict):
    """A request with this Idempotency-Key is still in progress. Send it again in a few seconds."""

    code = "idempotency_key_in_use"
    default_message = define_message(
        "error.still_doing",
        "A request with this Idempotency-Key is still in progress. Send it again in a few seconds.",
    )


def handler(route: Route) -> Callable[..., Response]:
    """The Flask view of a route."""

    @wraps(route.view)
    def handle(**path: Any) -> Response:
        if route.deprecated:
            _say_deprecated(route.deprecated)
        actor = auth.bearer()
        route.guard.require_scopes(actor)
        if any(isinstance(value, int) and not 0 < value <= MOST_NUMBER for value in path.values()):
            raise NotFound(NO_SUCH_NUMBER)
        if route.by_hand:
            call = Call(actor, cast(Session, None))
            return _made(route, call, route.view(call=call))
        if not route.writes:
            return _read(route, actor, path)
        with services().store.read() as session:  # before anything that was sent is read
            _about(route, session, actor, path)
        sent = _sent(route)
        key = key_of(actor, request_hash(parsing.raw_body())) if route.keyed else None
        with in_use(key):
            return _written(route, actor, {**path, **sent}, key)

    return handle


def _sent(route: Route) -> dict[str, Any]:
    """What the view is given of the body."""
    if route.body:
        return {"body": parsing.of_body(route.body)}
    return dict(zip(("form", "uploads"), parsing.of_form(route.form), strict=True)) if route.form else {}


def _say_deprecated(deprecation: Deprecation) -> None:
    """In the answer, whatever it is."""

    def say(response: Response) -> Response:
        response.headers.update(deprecation.headers)
        return response

    after_this_request(say)


def _about(route: Route, session: Session, actor: Actor, path: dict[str, Any]) -> Any:
    return route.guard.find(session, actor, **{name: path[name] for name in route.guard.arguments})


def _read(route: Route, actor: Actor, path: dict[str, Any]) -> Response:
    with services().store.read() as session:
        call = Call(actor, session)
        about = _about(route, session, actor, path)
        sent = {"query": parsing.of_query(route.query)} if route.query else {}
        return _made(route, call, _view(route, call, about, {**path, **sent}))


def _written(route: Route, actor: Actor, arguments: dict[str, Any], key: Idempotency | None) -> Response:
    try:
        return _once(route, actor, arguments, key)
    except IntegrityError:
        # two of the same at once on a database that locks rows: now the first one's rows are there
        return _once(route, actor, arguments, key)


def _once(route: Route, actor: Actor, arguments: dict[str, Any], key: Idempotency | None) -> Response:
    with services().store.write() as session:
        before = idempotency_keys.find_key(session, key)
        if before is not None:
            return _again(before.answer)
        stored = idempotency_keys.store_key(session, key)
        call = Call(actor, session)
        about = _about(route, session, actor, arguments)
        response = _made(route, call, _view(route, call, about, arguments))
        if stored is not None:
            stored.answer = _stored_answer(response, route.said_once)
    for one in call.after:
        one()
    return response


def _view(route: Route, call: Call, about: Any, arguments: dict[str, Any]) -> Any:
    available = {"call": call, "about": about, **arguments}
    return route.view(**{name: available[name] for name in route.names})


def _made(route: Route, call: Call, value: Any) -> Response:
    """What the view returned as an answer."""
    if isinstance(value, Response):
        return value
    if not isinstance(value, BaseModel):
        response = Response(status=route.status)
        response.headers.pop("Content-Type", None)
    else:
        response = jsonify(value.model_dump(mode="json"))
        response.status_code = route.status
    response.headers.update(call.headers)
    if call.etag:
        response.set_etag(call.etag)
    if route.writes or not isinstance(value, BaseModel):
        return response
    if not call.etag:
        response.add_etag()
    response.headers["Cache-Control"] = "private, no-cache"
    if etags.not_modified(response.get_etag()[0] or ""):
        response.status_code = 304
        response.set_data(b"")
    return response


# --- idempotency keys -----------------------------------------------------------------------------------


def key_of(actor: Actor, digest: str) -> Idempotency | None:
    """The key of the request, bare or quoted as a structured field. Raises InvalidField."""
    key = request.headers.get("Idempotency-Key")
    if key is None:
        return None
    if len(key) > 2 and key[0] == key[-1] == '"':
        key = key[1:-1]
    if not (0 < len(key) <= LONGEST_KEY and key.isascii() and key.isprintable()):
        raise InvalidField(IDEMPOTENCY_KEY_FORM(most=LONGEST_KEY))
    return Idempotency(actor.name, key, digest)


def request_hash(body: bytes) -> str:
    """A digest of all that makes this request what it is."""
    head = f"{request.method} {request.path}\0{request.headers.get('If-Match', '')}\0"
    return hashlib.sha256(head.encode("utf-8", "surrogatepass") + body).hexdigest()


@contextmanager
def in_use(key: Idempotency | None) -> Iterator[None]:
    """While a request with this key is answered. Raises StillDoing where one is already.

    That is for this process. Beside others, the key's row decides: the second one waits for the first.
    """
    if key is None:
        yield
        return
    lock, used = _in_use()
    place = (key.caller, key.key)
    with lock:
        if place in used:
            raise StillDoing
        used.add(place)
    try:
        yield
    finally:
        with lock:
            used.discard(place)


def _in_use() -> tuple[threading.Lock, set[tuple[str, str]]]:
    return cast(tuple[threading.Lock, set[tuple[str, str]]], current_app.extensions["grader-keys"])


def remember_keys(app: Any) -> None:
    """Let `in_use` work in this app."""
    app.extensions["grader-keys"] = (threading.Lock(), set())


def _stored_answer(response: Response, said_once: tuple[str, ...]) -> dict[str, Any]:
    """What is answered when the same comes again."""
    body = response.get_json() if response.is_json else None
    if body is not None:
        body = {**body, **dict.fromkeys(said_once)}
    heads = {name: response.headers[name] for name in ("Location", "ETag") if name in response.headers}
    return {"status": response.status_code, "body": body, "headers": heads}


def _again(answer: dict[str, Any] | None) -> Response:
    if answer is None:  # of a submission, which has its own way
        raise idempotency_keys.KeyUsed
    response = Response(status=answer["status"]) if answer["body"] is None else jsonify(answer["body"])
    response.status_code = answer["status"]
    response.headers.update(answer["headers"])
    response.headers["Idempotent-Replayed"] = "true"
    return response
