"""The web app of either platform: its pages for people, the addresses of its launches, and its services."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from flask import (
    Flask,
    Response,
    jsonify,
    make_response,
    redirect,
    render_template_string,
    request,
    session,
    url_for,
)
from werkzeug.wrappers import Response as BaseResponse

from cli.dev.platforms.canvas import Canvas
from cli.dev.platforms.moodle import Moodle
from cli.dev.platforms.world import Item, Refusal
from grading.integrations.lti.client import LINE_ITEM, LINE_ITEMS, RESULTS, ROSTER, SCORE
from grading.integrations.lti.values import SCOPE_LINE_ITEMS, SCOPE_RESULTS, SCOPE_ROSTER, SCOPE_SCORES

Platform = Moodle | Canvas

_HEAD = """<!doctype html><html lang="en"><meta charset="utf-8"><title>{{ title }}</title>
<style>body{font:16px system-ui;max-width:70rem;margin:2rem auto;padding:0 1rem}
iframe{width:100%;height:45rem;border:1px solid #888}td,th{padding:.2rem .8rem;text-align:left}</style>
<p><a href="/">{{ world.title }}</a> · <a href="/gradebook">Gradebook</a></p>"""

HOME = (
    _HEAD
    + """<h1>{{ world.title }}</h1>
<p>{{ title }} for tests. Choose a person and a link; Grader opens in a frame.</p>
{% for key, person in world.people.items() %}<h2>{{ person.name }} ({{ person.role }})</h2><ul>
{% for name, link in world.links.items() %}
<li><a href="{{ url_for('opened', person=key, link=name) }}">{{ link.title }}</a></li>{% endfor %}
{% if "student" not in person.role.lower() %}
<li><a href="{{ url_for('opened', person=key) }}">Place a new link …</a></li>{% endif %}
</ul>{% endfor %}</html>"""
)

OPEN = _HEAD + """<iframe name="tool" title="Grader" src="{{ start }}"></iframe></html>"""

PLACED = (
    _HEAD
    + """<p>Links in the course:</p><ul>
{% for link in world.links.values() %}<li>{{ link.title }}</li>{% endfor %}</ul></html>"""
)

GRADEBOOK = (
    _HEAD
    + """<h1>Gradebook</h1><table>
<tr><th>Person</th>{% for item in world.items.values() %}
<th>{{ item.label }} ({{ "%g"|format(item.most) }})</th>{% endfor %}</tr>
{% for key, person in world.people.items() if "student" in person.role.lower() %}
<tr><th>{{ person.name }}</th>
{% for item in world.items.values() %}{% set score = item.scores.get(person.id) %}
<td data-cell="{{ key }}-{{ item.id }}">
{%- if score and score.points is not none %}{{ "%g"|format(score.points) }}
{% for comment in score.comments %}<small>{{ comment|urlize(target="_blank") }}</small>{% endfor %}
{% else %}–{% endif %}</td>{% endfor %}</tr>{% endfor %}</table>
{% if not world.items %}
<p>There are no columns. Grader creates one with the first released grade or link.</p>{% endif %}
</html>"""
)

POST = """<!doctype html><meta charset="utf-8"><title>To the tool</title>
<form method="post" action="{{ url }}" id="f">{% for name, value in fields.items() %}
<input type="hidden" name="{{ name }}" value="{{ value }}">{% endfor %}<button>Go on</button></form>
<script>document.getElementById("f").submit()</script>"""


def create_platform(world: Platform) -> Flask:
    """An app that is this platform."""
    app = Flask(__name__)
    app.secret_key = world.key.kid
    app.config["SESSION_COOKIE_NAME"] = "platform"
    app.register_error_handler(Refusal, lambda error: (jsonify(error.body), error.status, error.headers))
    app.context_processor(lambda: {"world": world, "title": f"A {type(world).__name__}"})
    _add_pages(app, world)
    _add_login(app, world)
    if isinstance(world, Moodle):
        _add_moodle(app, world)
        _add_moodle_services(app, world)
    else:
        _add_canvas(app, world)
        _add_canvas_services(app, world)
    return app


def _add_pages(app: Flask, world: Platform) -> None:
    @app.get("/")
    def home() -> str:
        return render_template_string(HOME)

    @app.get("/open")
    def opened() -> str:
        """A page with the tool in a frame."""
        begin = url_for("start", person=request.args["person"], link=request.args.get("link", ""))
        return render_template_string(OPEN, start=begin)

    @app.get("/start")
    def start() -> str:
        """Post the login to the tool, for who says who they are."""
        session["person"] = person = request.args["person"]
        fields = world.begin(person, request.args.get("link", ""))
        return render_template_string(POST, url=f"{world.tool}/lti/login", fields=fields)

    @app.get("/gradebook")
    def gradebook() -> str:
        return render_template_string(GRADEBOOK)

    @app.get("/invite")
    def invite() -> Response:
        """What the platform adds to a tool's registration link."""
        return jsonify(world.invite())


def _add_login(app: Flask, world: Platform) -> None:
    """What both have, at addresses of their own."""
    paths = {name: url.removeprefix(world.base) for name, url in world.addresses().items()}

    @app.get(paths["jwks_url"])
    def jwks() -> Response:
        return jsonify(world.jwks())

    @app.route(paths["authorize_url"], methods=["GET", "POST"])
    def authorize() -> str:
        asked = request.values.to_dict()
        fields = world.authorize(asked, session.get("person", ""))
        return render_template_string(POST, url=asked["redirect_uri"], fields=fields)

    @app.post(paths["token_url"])
    def token() -> Response:
        answer = jsonify(world.take_assertion(request.form.to_dict()))
        if isinstance(world, Moodle):
            answer.mimetype = "text/html"  # token.php sets no type of its own
        return answer


# --- Moodle -----------------------------------------------------------------------------------------


def _add_moodle(app: Flask, world: Moodle) -> None:
    @app.get("/mod/lti/openid-configuration.php")
    def configuration() -> Response:
        return jsonify(world.configuration())

    @app.post("/mod/lti/openid-registration.php")
    def register() -> Response:
        return jsonify(world.register(request.headers.get("Authorization", ""), request.get_json()))

    @app.post("/mod/lti/contentitem_return.php")
    def choice() -> str:
        world.take_choice(request.form.get("JWT", ""))
        return render_template_string(PLACED)

    @app.get("/mod/lti/view.php")
    def view() -> BaseResponse:
        """The page of a link, for who is signed in; `l` is its number."""
        found = next(key for key, link in world.links.items() if link.id == request.args["l"])
        return redirect(url_for("opened", person=session.get("person", "student-1"), link=found))


def _add_moodle_services(app: Flask, world: Moodle) -> None:
    services = "/mod/lti/services.php"

    @app.get(f"{services}/CourseSection/<course>/bindings/<binding>/memberships")
    def memberships(course: str, binding: str) -> Response:
        _moodle_right(world, SCOPE_ROSTER)
        _moodle_accept(ROSTER)
        body = {
            "id": request.base_url, "context": {"id": course, "label": "BA", "title": world.title},
            "members": world.members(),
        }  # fmt: skip
        return Response(json.dumps(body), mimetype=ROSTER)

    @app.get(f"{services}/<course>/lineitems")
    def line_items(course: str) -> Response:
        _moodle_right(world, SCOPE_LINE_ITEMS)
        if request.headers.get("Accept") not in ("", None, LINE_ITEMS):
            raise Refusal(400, "No context or unsupported content type")
        listed = [world.item_json(one) for one in world.items.values()]
        return _moodle_page(listed, request.args.get("limit", 0, type=int))

    @app.post(f"{services}/<course>/lineitems")
    def add(course: str) -> tuple[Response, int]:
        _moodle_right(world, SCOPE_LINE_ITEMS)
        _moodle_kind(LINE_ITEM)
        said = request.get_json(force=True)
        if not said.get("label") or not isinstance(said.get("scoreMaximum"), int | float):
            raise Refusal(400, "Missing label or scoreMaximum")
        known = {link.id for link in world.links.values()}
        if said.get("resourceLinkId") and said["resourceLinkId"] not in known:
            raise Refusal(403, "The resource link is of another tool")
        body = {**said, "id": world.line_item_url(world.add_item(said))}
        return Response(json.dumps(body), mimetype=LINE_ITEM), 201

    @app.post(f"{services}/<course>/lineitems/<int:item>/lineitem/scores")
    def scores(course: str, item: int) -> Response:
        _moodle_right(world, SCOPE_SCORES)
        _moodle_kind(SCORE)
        world.score(_known(world, item).id, request.get_json(force=True))
        return Response(mimetype=SCORE)

    @app.get(f"{services}/<course>/lineitems/<int:item>/lineitem/results")
    def results(course: str, item: int) -> Response:
        _moodle_right(world, SCOPE_RESULTS)
        _moodle_accept(RESULTS)
        return Response(json.dumps(world.results(_known(world, item))), mimetype=RESULTS)


def _moodle_right(world: Moodle, scope: str) -> None:
    if not world.holds(request.headers.get("Authorization", ""), scope):
        raise Refusal(401, "Unauthorized", {"status": 401, "reason": "Unauthorized"})


def _moodle_accept(kind: str) -> None:
    """services.php knows no lists and no weights: one type, or anything."""
    said = request.headers.get("Accept", "")
    if said and "*/*" not in said and said != kind:
        raise Refusal(400, f"No handler found for {request.path} {said}")


def _moodle_kind(kind: str) -> None:
    if request.mimetype != kind:
        raise Refusal(400, f"No handler found for {request.path} {request.mimetype}")


def _moodle_page(rows: Sequence[Any], limit: int) -> Response:
    """A list; its links are quoted with “ and written as HTML (moodle_url->out)."""
    start = request.args.get("from", 0, type=int)
    shown = rows[start : start + limit] if limit else rows
    answer = Response(json.dumps(shown), mimetype=LINE_ITEMS)
    if limit and start + limit < len(rows):
        following = f"{request.base_url}?type_id=1&amp;limit={limit}&amp;from={start + limit}"
        answer.headers["Link"] = f"<{following}>; rel=“next”".encode().decode("latin-1")
    return answer


# --- Canvas -----------------------------------------------------------------------------------------


def _add_canvas(app: Flask, world: Canvas) -> None:
    @app.get("/api/lti/security/openid-configuration")
    def configuration() -> Response:
        if not request.args.get("registration_token"):
            raise Refusal(401, "Access token missing")
        return jsonify(world.configuration())

    @app.post("/api/lti/registrations")
    def register() -> Response:
        return jsonify(world.register(request.headers.get("Authorization", ""), request.get_json()))

    @app.post("/courses/<int:course>/deep_linking_response")
    def choice(course: int) -> str:
        if not request.args.get("data"):
            raise Refusal(400, "Do not modify the deep_link_return_url in any way.")
        world.take_choice(request.form.get("JWT", ""))
        return render_template_string(PLACED)

    @app.get("/courses/<int:course>")
    def page(course: int) -> BaseResponse:
        """The page of the course."""
        return redirect(url_for("home"))


def _add_canvas_services(app: Flask, world: Canvas) -> None:
    services = "/api/lti/courses/<int:course>"

    @app.get(f"{services}/names_and_roles")
    def members(course: int) -> Response:
        _canvas_right(world, SCOPE_ROSTER)
        rows = world.members()
        start = request.args.get("page", 1, type=int) - 1
        end = (start + 1) * world.page
        context = {"id": world.context, "label": "BA", "title": world.title}
        body = {"id": request.url, "context": context, "members": rows[start * world.page : end]}
        answer = make_response(json.dumps(body))
        answer.content_type = f"{ROSTER}; charset=utf-8"
        if end < len(rows):
            following = f"{request.base_url}?page={start + 2}&per_page={world.page}"
            answer.headers["Link"] = f'<{request.url}>; rel="current",<{following}>; rel="next"'
        return answer

    @app.get(f"{services}/line_items")
    def line_items(course: int) -> Response:
        _canvas_right(world, SCOPE_LINE_ITEMS)
        return Response(
            json.dumps([world.item_json(one) for one in world.items.values()]), mimetype=LINE_ITEMS
        )

    @app.post(f"{services}/line_items")
    def add(course: int) -> tuple[Response, int]:
        _canvas_right(world, SCOPE_LINE_ITEMS)
        said = request.get_json(force=True)
        if said.get("resourceLinkId") not in {one.link for one in world.items.values()}:
            raise Refusal(
                404, "no such link", {"errors": {"type": "not_found", "message": "Resource not found"}}
            )
        return Response(json.dumps(world.item_json(world.add_item(said))), mimetype=LINE_ITEM), 201

    @app.post(f"{services}/line_items/<int:item>/scores")
    def scores(course: int, item: int) -> Response:
        _canvas_right(world, SCOPE_SCORES)
        world.score(_known(world, item).id, request.get_json(force=True))
        return Response(json.dumps({"resultUrl": f"{request.base_url}/results/1"}), mimetype=SCORE)

    @app.get(f"{services}/line_items/<int:item>/results")
    def results(course: int, item: int) -> Response:
        _canvas_right(world, SCOPE_RESULTS)
        return Response(json.dumps(world.results(_known(world, item))), mimetype=RESULTS)


def _canvas_right(world: Canvas, scope: str) -> None:
    """A token without the scope is answered 401, too (controllers/lti/ims/concerns/lti_services.rb)."""
    if not world.holds(request.headers.get("Authorization", ""), scope):
        body = {"errors": {"type": "unauthorized", "message": "Insufficient permissions"}}
        raise Refusal(401, "Insufficient permissions", body)


def _known(world: Platform, number: int) -> Item:
    found = world.items.get(number)
    if found is None:
        body = {"errors": [{"message": "The specified resource does not exist."}]}
        raise Refusal(404, "no such column", body)
    return found
