"""The OpenAPI 3.1 description, made from the table of routes: what is not declared there does not exist."""

from __future__ import annotations

import re
from functools import cache
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from app.api.framework import LONGEST_KEY
from app.api.paging import Paged
from app.api.routes import PREFIX, ROUTES, Route

REF = "#/components/schemas/{model}"
TAGS = {
    "submissions": "Handing in, and what was handed in",
    "courses": "Courses",
    "rosters": "The people of a course",
    "assignments": "Assignments with their dates and rules",
    "rubrics": "Rubrics and their versions",
    "grades": "Results, people's changes of them, releasing",
    "regrades": "Re-runs by machines, and students' requests",
    "exports": "Tables and everything of an assignment",
    "machines": "Machines",
    "users": "Accounts of people",
    "events": "Receivers of events, deliveries, secrets of learning systems",
    "me": "Who asks",
}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "id": {"type": "string", "pattern": "^[0-9a-z]{1,32}$"},
    "run_id": {"type": "string", "pattern": "^[0-9a-z]{1,32}$"},
    "dry_run_id": {"type": "string", "pattern": "^[0-9a-z]{1,32}$"},
    "receiver": {"type": "string", "pattern": "^[0-9a-z-]{1,40}$"},
    "file_path": {"type": "string", "minLength": 1, "maxLength": 400},
}
NUMBER = {"type": "integer", "minimum": 1, "maximum": 2_147_483_647}
ABOUT = {
    304: "It is as your If-None-Match says.",
    400: "The request contradicts itself, or what is there.",
    401: "No token, or one that is unknown, expired or revoked.",
    403: "The owner of the token may not do this, or a scope is missing.",
    404: "Nothing there, or nothing that you may know of.",
    409: "It does not fit what is there; or the Idempotency-Key is in use right now.",
    412: "Somebody changed it since the ETag of your If-Match.",
    413: "Too large.",
    415: "The body has another Content-Type, or a file is of a kind that cannot be graded.",
    422: "A field cannot be taken, `detail` names it; or the Idempotency-Key was used for another request.",
    428: "Send If-Match.",
    429: "Too many requests; Retry-After says when to go on.",
    503: "The database cannot be used right now; nothing was stored.",
    507: "The server's disk is full; nothing was stored.",
}
LIMITS = {
    "RateLimit-Policy": "how many requests (`q`) a person may send in so many seconds (`w`)",
    "RateLimit": "how many are left (`r`), and in how many seconds there is more (`t`)",
}
HEADERS = {
    "ETag": "for `If-Match` and `If-None-Match`",
    "Link": 'the next page of the list, as `rel="next"`',
    "Location": "where that can be asked for which was made",
    "Idempotent-Replayed": "`true` where this was answered before, under the same key",
    "Retry-After": "seconds after which to send it again",
    "Deprecation": "when the operation was deprecated (RFC 9745): `@` and seconds since 1970",
    "Sunset": "when the operation ends (RFC 8594)",
    "X-Request-ID": "the caller's own, or a new one; it stands in the server's log",
}


class Problem(BaseModel):
    """Problem details (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    request_id: str


@cache
def document() -> dict[str, Any]:
    """All of it."""
    schemas, definitions = _schemas()
    paths: dict[str, Any] = {}
    for route in ROUTES:
        paths.setdefault(path_of(route), {})[route.method.lower()] = _operation(route, schemas)
    paths[f"{PREFIX}/openapi.json"] = {"get": _itself()}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Grader", "version": "1", "description": "Grades homework with local models."},
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": about} for name, about in TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": definitions,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "bearerFormat": "grd_…"}},
            "headers": {name: _header(about) for name, about in {**LIMITS, **HEADERS}.items()},
        },
    }


def path_of(route: Route) -> str:
    """The address as the description writes it: `/courses/{course_id}`."""
    return PREFIX + re.sub(r"<(?:[^:>]*:)?(\w+)>", r"{\1}", route.rule)


def arguments(route: Route) -> list[str]:
    """The names of the arguments of its address."""
    return re.findall(r"{(\w+)}", path_of(route))


def _schemas() -> tuple[dict[tuple[Any, str], Any], dict[str, Any]]:
    """A reference to the schema of each value, by class and direction, and all schemas."""
    wanted: dict[tuple[type[BaseModel], str], None] = {(Problem, "serialization"): None}
    for route in ROUTES:
        if route.gives:
            wanted[route.gives, "serialization"] = None
        for model in (route.body, route.form):
            if model:
                wanted[model, "validation"] = None
    found: Any
    found, whole = models_json_schema(list(wanted), ref_template=REF)  # type: ignore[arg-type]
    return {**found}, whole["$defs"]


def _operation(route: Route, schemas: dict[tuple[Any, str], Any]) -> dict[str, Any]:
    words = (route.view.__doc__ or "").strip().split("\n")[0]
    scopes = sorted(route.guard.scopes)
    made: dict[str, Any] = {
        "operationId": route.name,
        "tags": [route.tag],
        "summary": words,
        "security": [{"token": scopes}],
        "parameters": [*_places(route), *_parameters(route)],
        "responses": {str(route.status): _success(route, schemas)},
    }
    for status in route.statuses:
        made["responses"][str(status)] = _problem(status, schemas)
    if route.deprecated:
        made["deprecated"] = True
        for response in made["responses"].values():
            response["headers"] |= _referred(list(route.deprecated.headers))
    if route.body:
        content = {"application/json": {"schema": schemas[route.body, "validation"]}}
        made["requestBody"] = {"required": True, "content": content}
    if route.form:
        content = {"multipart/form-data": {"schema": schemas[route.form, "validation"]}}
        made["requestBody"] = {"required": True, "content": content}
    return made


def _places(route: Route) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": ARGUMENTS.get(name, NUMBER)}
        for name in arguments(route)
    ]


def _parameters(route: Route) -> list[dict[str, Any]]:
    found = []
    for name, schema in _fields(route.query).items():
        about = schema.pop("description", "")
        one = {"name": name, "in": "query", "required": False, "schema": schema}
        found.append({**one, "description": about} if about else one)
    if route.keyed:
        key = {"type": "string", "minLength": 1, "maxLength": LONGEST_KEY, "pattern": "^[!-~]([ -~]*[!-~])?$"}
        about = "The same request with the same key does something once, and is answered as the first time."
        found.append({"name": "Idempotency-Key", "in": "header", "schema": key, "description": about})
    if route.matches:
        about = "The ETag of what you saw, or `*`."
        found.append(
            {"name": "If-Match", "in": "header", "required": True, "schema": _TAG, "description": about}
        )
    return found


_TAG = {"type": "string", "pattern": '^([*]|"[!#-~]{1,100}")$'}


def _fields(query: type[BaseModel] | None) -> dict[str, Any]:
    """The parameters of a query, each with a schema that refers to nothing; none of them can be null."""
    if query is None:
        return {}
    found: dict[str, Any] = query.model_json_schema()["properties"]
    for schema in found.values():
        schema.pop("title", None)
        kinds = [one for one in schema.pop("anyOf", []) if one != {"type": "null"}]
        if kinds:
            schema.update(kinds[0])
            if schema.get("default", ...) is None:
                del schema["default"]
    return found


def _success(route: Route, schemas: dict[tuple[Any, str], Any]) -> dict[str, Any]:
    made: dict[str, Any] = {"description": HTTPStatus(route.status).phrase, "headers": _headers(route)}
    if route.gives:
        made["content"] = {"application/json": {"schema": schemas[route.gives, "serialization"]}}
    elif route.file:
        made["content"] = {route.file: {"schema": {}}}
    return made


def _problem(status: int, schemas: dict[tuple[Any, str], Any]) -> dict[str, Any]:
    headers = ["X-Request-ID", *(["Retry-After"] if status in (429, 503) else [])]
    made: dict[str, Any] = {"description": ABOUT[status], "headers": _referred(headers)}
    if status >= 400:
        schema = schemas[Problem, "serialization"]
        made["content"] = {"application/problem+json": {"schema": schema}}
    return made


def _headers(route: Route) -> dict[str, Any]:
    """Those of its success."""
    paged = route.query is not None and issubclass(route.query, Paged)
    headers = {
        "ETag": not route.writes and not route.file,
        "Link": paged,
        "Location": route.status in (201, 202),
        "Idempotent-Replayed": route.keyed and not route.by_hand,
    }
    return _referred([*LIMITS, "X-Request-ID", *(name for name, wanted in headers.items() if wanted)])


def _referred(names: list[str]) -> dict[str, Any]:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def _header(about: str) -> dict[str, Any]:
    return {"description": about, "schema": {"type": "string"}}


def _itself() -> dict[str, Any]:
    schema = {"type": "object"}
    ok = {"description": "OK", "content": {"application/json": {"schema": schema}}}
    words = "This description."
    return {
        "operationId": "description",
        "tags": ["me"],
        "summary": words,
        "security": [],
        "responses": {"200": ok},
    }
