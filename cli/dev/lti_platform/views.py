"""The test platform's few pages."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

import requests
from flask import Flask, Response, abort, jsonify, redirect, render_template_string, request, url_for
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from werkzeug.wrappers import Response as BaseResponse

from cli.dev.lti_platform.world import Item, Refusal, World
from grading.integrations.lti.client import LINE_ITEM, LINE_ITEMS, RESULTS, ROSTER
from grading.integrations.lti.values import (
    CLAIM,
    DEEP,
    ROLE,
    SCOPE_LINE_ITEMS,
    SCOPE_RESULTS,
    SCOPE_ROSTER,
    SCOPE_SCORES,
)

_HEAD = """<!doctype html><html lang="en"><meta charset="utf-8"><title>A learning platform to try with</title>
<style>body{font:16px system-ui;max-width:70rem;margin:2rem auto;padding:0 1rem}
iframe{width:100%;height:45rem;border:1px solid #888}td,th{padding:.2rem .8rem;text-align:left}</style>
<p><a href="/">{{ world.title }}</a> · <a href="/gradebook">Gradebook</a></p>"""

HOME = (
    _HEAD
    + """<h1>{{ world.title }}</h1>
<p>A learning platform to try with. Choose who you are and what you open; Grader appears in a frame.</p>
{% for person in world.people.values() %}<h2>{{ person.name }} ({{ person.role }})</h2><ul>
{% for link in world.links.values() %}
<li><a href="{{ url_for('opened', person=person.id, link=link.id) }}">{{ link.title }}</a></li>{% endfor %}
{% if person.role == "Instructor" %}
<li><a href="{{ url_for('opened', person=person.id) }}">Place a new link …</a></li>{% endif %}
</ul>{% endfor %}</html>"""
)

OPEN = _HEAD + """<iframe name="tool" title="Grader" src="{{ start }}"></iframe></html>"""

PLACED = (
    _HEAD
    + """<p>Placed. These links are in the course now:</p><ul>
{% for link in world.links.values() %}<li>{{ link.title }}</li>{% endfor %}</ul></html>"""
)

GRADEBOOK = (
    _HEAD
    + """<h1>Gradebook</h1><table>
<tr><th>Person</th>{% for item in world.items.values() %}
<th>{{ item.label }} ({{ "%g"|format(item.most) }})</th>{% endfor %}</tr>
{% for person in world.people.values() if person.role == "Learner" %}<tr><th>{{ person.name }}</th>
{% for item in world.items.values() %}{% set score = item.scores.get(person.id) %}
<td data-cell="{{ person.id }}-{{ item.id }}">
{%- if score %}{{ "%g"|format(score.scoreGiven / score.scoreMaximum * item.most) }}
<small>{{ score.comment }}</small>{% else %}–{% endif %}</td>{% endfor %}</tr>{% endfor %}</table>
{% if not world.items %}
<p>No column yet: Grader makes one with the first released grade, or when a link is placed.</p>{% endif %}
</html>"""
)

POST = """<!doctype html><meta charset="utf-8"><title>To the tool</title>
<form method="post" action="{{ url }}" id="f">{% for name, value in fields.items() %}
<input type="hidden" name="{{ name }}" value="{{ value }}">{% endfor %}<button>Go on</button></form>
<script>document.getElementById("f").submit()</script>"""


TIMEOUT_S = 15.0


def create_platform(world: World) -> Flask:
    """An app that is this platform."""
    app = Flask(__name__)
    app.register_error_handler(Refusal, lambda error: (jsonify(error=str(error)), error.status))
    _add_pages(app, world)
    _add_login(app, world)
    _add_registration(app, world)
    _add_grades(app, world)
    _add_roster(app, world)
    return app


def _add_pages(app: Flask, world: World) -> None:
    @app.get("/")
    def home() -> str:
        return render_template_string(HOME, world=world)

    @app.get("/open")
    def opened() -> str:
        """A page with the tool in a frame."""
        person, link = request.args.get("person", ""), request.args.get("link", "")
        begin = url_for("start", person=person, link=link)
        return render_template_string(OPEN, world=world, start=begin)

    @app.get("/start")
    def start() -> BaseResponse:
        """Ask the tool to begin a launch."""
        person, link = request.args.get("person", ""), request.args.get("link", "")
        query = {
            "iss": world.base, "login_hint": person, "lti_message_hint": link or "deep",
            "target_link_uri": f"{world.tool}/lti/launch", "client_id": world.client_id,
            "lti_deployment_id": world.deployment,
        }  # fmt: skip
        return redirect(f"{world.tool}/lti/login?{urlencode(query)}")

    @app.get("/gradebook")
    def gradebook() -> str:
        return render_template_string(GRADEBOOK, world=world)

    @app.post("/deep")
    def deep() -> str:
        """What an instructor chose in the tool."""
        claims = _verified(world, request.form.get("JWT", ""), world.base)
        if claims.get(f"{CLAIM}deployment_id") != world.deployment or claims.get(f"{DEEP}data") is None:
            raise Refusal(400, "the answer has another deployment, or lacks the data")
        for one in claims.get(f"{DEEP}content_items", []):
            world.add_link(str(one.get("title")), one.get("custom") or {}, one.get("lineItem"))
        return render_template_string(PLACED, world=world)


def _add_login(app: Flask, world: World) -> None:
    @app.get("/jwks")
    def jwks() -> Response:
        return jsonify(world.jwks())

    @app.get("/authorize")
    def authorize() -> str:
        """Sign a launch for whom the hint names."""
        args = request.args
        if args.get("client_id") != world.client_id or args.get("redirect_uri") != f"{world.tool}/lti/launch":
            raise Refusal(400, "another tool, or another address")
        person, hint = world.people.get(args.get("login_hint", "")), args.get("lti_message_hint", "")
        link = world.links.get(hint)
        if person is None or (link is None and hint != "deep"):
            raise Refusal(400, "nobody, or no such link")
        token = world.id_token(person, link, args.get("nonce", ""))
        return render_template_string(
            POST, url=args["redirect_uri"], fields={"id_token": token, "state": args.get("state", "")}
        )

    @app.post("/token")
    def token() -> Response:
        """A token for who proves to be the tool."""
        claims = _verified(world, request.form.get("client_assertion", ""), f"{world.base}/token")
        with world.lock:
            if claims.get("sub") != world.client_id or str(claims.get("jti")) in world.used:
                raise Refusal(401, "another client, or used before")
            world.used.add(str(claims.get("jti")))
        supported = {SCOPE_LINE_ITEMS, SCOPE_RESULTS, SCOPE_SCORES, SCOPE_ROSTER}
        scopes = frozenset(request.form.get("scope", "").split()) & supported
        return jsonify(
            access_token=world.give_token(scopes),
            token_type="Bearer",  # noqa: S106
            expires_in=3600,
            scope=" ".join(scopes),
        )


def _verified(world: World, token: str, audience: str) -> dict[str, Any]:
    """Claims that the tool signed. Raises Refusal."""
    found = requests.get(f"{world.tool}/lti/jwks", timeout=TIMEOUT_S).json()
    try:
        claims = jwt.decode(token, KeySet.import_key_set(found), algorithms=["RS256"])
        jwt.JWTClaimsRegistry(
            aud={"essential": True, "value": audience},
            iss={"essential": True, "value": world.client_id},
            leeway=30,
            now=lambda: int(world.now()),
        ).validate(claims.claims)
    except (JoseError, ValueError) as error:
        raise Refusal(401, f"the tool's signature or claims: {type(error).__name__}") from None
    return dict(claims.claims)


def _add_registration(app: Flask, world: World) -> None:
    @app.get("/.well-known/openid-configuration")
    def configuration() -> Response:
        return jsonify(
            issuer=world.base,
            authorization_endpoint=f"{world.base}/authorize",
            token_endpoint=f"{world.base}/token",
            jwks_uri=f"{world.base}/jwks",
            registration_endpoint=f"{world.base}/register",
            **{"https://purl.imsglobal.org/spec/lti-platform-configuration": {"product_family_code": "test"}},
        )

    @app.get("/invite")
    def invite() -> Response:
        """What a platform adds to a tool's registration link."""
        token = secrets.token_urlsafe(16)
        world.register_tokens.add(token)
        return jsonify(
            openid_configuration=f"{world.base}/.well-known/openid-configuration", registration_token=token
        )

    @app.post("/register")
    def register() -> Response:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if token not in world.register_tokens:
            raise Refusal(401, "no valid registration token")
        world.register_tokens.discard(token)
        body = request.get_json()
        if f"{world.tool}/lti/launch" not in body["redirect_uris"]:
            raise Refusal(400, "another tool")
        tool = "https://purl.imsglobal.org/spec/lti-tool-configuration"
        return jsonify({**body, "client_id": world.client_id, tool: {**body[tool], "deployment_id": "1"}})


def _add_grades(app: Flask, world: World) -> None:
    def bearer(scope: str) -> None:
        world.require(request.headers.get("Authorization", ""), scope)

    def found(item_id: int) -> Item:
        return world.items.get(item_id) or abort(404)

    @app.get("/lineitems")
    def listing() -> Response:
        bearer(SCOPE_LINE_ITEMS)
        return _page(world, "listing", [_item(world, one) for one in world.items.values()], LINE_ITEMS)

    @app.post("/lineitems")
    def add() -> Response:
        bearer(SCOPE_LINE_ITEMS)
        answer = jsonify(_item(world, world.add_item(request.get_json(force=True))))
        answer.status_code, answer.mimetype = 201, LINE_ITEM
        return answer

    @app.post("/lineitems/<int:item_id>/scores")
    def scores(item_id: int) -> Response:
        bearer(SCOPE_SCORES)
        found(item_id)
        world.score(item_id, request.get_json(force=True))
        return Response(status=204)

    @app.get("/lineitems/<int:item_id>/results")
    def results(item_id: int) -> Response:
        bearer(SCOPE_RESULTS)
        return _page(world, "results", world.results(found(item_id)), RESULTS, item_id=item_id)


def _add_roster(app: Flask, world: World) -> None:
    @app.get("/memberships")
    def memberships() -> Response:
        world.require(request.headers.get("Authorization", ""), SCOPE_ROSTER)
        people = [
            {
                "user_id": one.id, "name": one.name, "email": one.email, "status": "Active",
                "roles": [f"{ROLE}membership#{one.role}"],
            }
            for one in world.people.values()
        ]  # fmt: skip
        start, end = _range(world)
        body = {
            "id": f"{world.base}/memberships",
            "context": {"id": world.context},
            "members": people[start:end],
        }
        return _linked(
            Response(json.dumps(body), mimetype=ROSTER), world, "memberships", end < len(people), end
        )


def _item(world: World, item: Item) -> dict[str, Any]:
    return {
        "id": f"{world.base}/lineitems/{item.id}", "label": item.label, "scoreMaximum": item.most,
        "resourceLinkId": item.link, "resourceId": item.resource, "tag": item.tag,
    }  # fmt: skip


def _range(world: World) -> tuple[int, int]:
    start = request.args.get("from", 0, type=int)
    return start, start + world.page


def _page(world: World, view: str, rows: Sequence[Any], kind: str, **values: Any) -> Response:
    start, end = _range(world)
    answer = Response(json.dumps(rows[start:end]), mimetype=kind)
    return _linked(answer, world, view, end < len(rows), end, **values)


def _linked(answer: Response, world: World, view: str, more: bool, end: int, **values: Any) -> Response:
    if more:
        path = url_for(view, **values)
        answer.headers["Link"] = f'<{world.base}{path}?from={end}>; rel="next"'
    return answer
