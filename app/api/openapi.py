"""The OpenAPI 3.1 description, made from the table of routes: what is not declared there does not exist."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel, Field
from pydantic.json_schema import models_json_schema

from app.api.examples import example_of
from app.api.framework import LONGEST_KEY
from app.api.paging import Paged
from app.api.routes import PREFIX, ROUTES, Route
from app.api.sent_events import webhooks
from grading.integrations.events import Event

REF = "#/components/schemas/{model}"
TAGS = {
    "submissions": "Submissions",
    "courses": "Courses",
    "rosters": "Rosters of courses",
    "assignments": "Assignments, their dates and policies",
    "extensions": "Extensions",
    "groups": "Groups",
    "platforms": "Links to learning platforms",
    "rubrics": "Rubrics and their versions",
    "material": "Files of assignments: starter, solution, tests and data",
    "grades": "Results, changes by people, and release",
    "guarantees": "What may be released unread",
    "regrades": "Regrades and regrade requests",
    "exports": "Exports: tables, and all data of an assignment",
    "machines": "Machines",
    "users": "Accounts",
    "events": "Event receivers, deliveries, webhook secrets",
    "me": "The current token",
}
_ID = {"type": "string", "pattern": "^[0-9a-z]{1,32}$"}
_NUMBER = {"type": "integer", "minimum": 1, "maximum": 2_147_483_647}
ARGUMENTS: dict[str, tuple[dict[str, Any], str, object]] = {
    "id": (_ID, "the ID of the submission", "4f0c2d91"),
    "run_id": (_ID, "the ID of the run", "91ab03c4"),
    "dry_run_id": (_ID, "the ID of the regrade", "51de90c4"),
    "receiver": ({"type": "string", "pattern": "^[0-9a-z-]{1,40}$"}, "the name of the receiver", "lms"),
    "key": (
        {"type": "string", "pattern": "^test:[0-9a-f]{32}$"},
        "the key of the test message",
        "test:4f0c2d914f0c2d914f0c2d914f0c2d91",
    ),
    "path": (
        {"type": "string", "minLength": 1, "maxLength": 400},
        "the path of the file, with its folder",
        "data/sales.csv",
    ),
    "file_path": ({"type": "string", "minLength": 1, "maxLength": 400}, "the path of the file", "basket.py"),
    "course_id": (_NUMBER, "the ID of the course", 3),
    "assignment_id": (_NUMBER, "the ID of the assignment", 12),
    "version_number": (_NUMBER, "the version of the rubric", 4),
    "user_id": (_NUMBER, "the ID of the account", 17),
    "student_id": (_NUMBER, "the ID of the student's account", 17),
    "change_id": (_NUMBER, "the ID of the change", 31),
    "delivery_id": (_NUMBER, "the ID of the attempt", 204),
    "secret_id": (_NUMBER, "the ID of the secret", 2),
    "request_id": (_NUMBER, "the ID of the regrade request", 8),
}
"""Of addresses: schema, what it is, and an example."""
ABOUT = {
    304: "Not modified since the ETag in If-None-Match.",
    400: "The request is not valid, or it conflicts with existing data.",
    401: "No token, or the token is unknown, expired or revoked.",
    403: "The owner of the token has no permission, or the token lacks a scope.",
    404: "Not found, or you have no access.",
    409: "Conflict with existing data, or a request with this Idempotency-Key is in progress.",
    412: "The object was changed after the ETag in If-Match. Read it again, then retry.",
    413: "Too large.",
    415: "The Content-Type of the body is wrong, or a file has a type that cannot be graded.",
    422: "A field is not valid (`detail` names it), or the Idempotency-Key was used for another request.",
    428: "Send If-Match.",
    429: "Too many requests. Wait for the seconds in Retry-After.",
    503: "The database is not available. Nothing was stored.",
    507: "The server's disk is full. Nothing was stored.",
}
LIMITS = {
    "RateLimit-Policy": "the maximum number of requests (`q`) of a person in a window of seconds (`w`)",
    "RateLimit": "the remaining requests (`r`), and the seconds until the window resets (`t`)",
}
HEADERS = {
    "ETag": "for `If-Match` and `If-None-Match`",
    "Link": 'the next page of the list, as `rel="next"`',
    "Location": "the URL of the new object",
    "Idempotent-Replayed": "`true` if this request was answered before with the same Idempotency-Key",
    "Retry-After": "seconds to wait before sending the request again",
    "Deprecation": "when the operation was deprecated (RFC 9745): `@` and seconds since 1970",
    "Sunset": "when the operation ends (RFC 8594)",
    "X-Request-ID": "the ID of the request, from the client or new; the log of the server has it",
}


class Problem(BaseModel):
    """Problem details (RFC 9457)."""

    type: str = Field(description="`urn:grader:` and the code", examples=["urn:grader:not_found"])
    title: str = Field(description="the text of the HTTP status", examples=["Not Found"])
    status: int = Field(description="the HTTP status of the response", examples=[404])
    detail: str = Field(
        description="what is wrong, as a sentence",
        examples=["Nothing with this ID exists."],
    )
    code: str = Field(
        description="the code of the error; it does not change between versions", examples=["not_found"]
    )
    request_id: str = Field(
        description="the ID of the request in the log of the server",
        examples=["0b0f4a1f9d5c4f0e8a3a1f6f3c2b7d55"],
    )
    message_code: str | None = Field(
        None,
        description="the code of the message in `detail`, if it has one",
        examples=["api.no_such_number"],
    )
    params: dict[str, Any] | None = Field(None, description="the parameters of the message", examples=[{}])


@dataclass(frozen=True)
class Schemas:
    """The schemas of all values that are sent, by reference."""

    references: dict[tuple[Any, str], dict[str, Any]]
    """By class and direction."""
    definitions: dict[str, Any]

    def content(self, media_type: str, model: type[BaseModel], direction: str) -> dict[str, Any]:
        """A body of this class: its schema and an example."""
        schema = self.references[model, direction]
        return {media_type: {"schema": schema, "example": example_of(schema, self.definitions)}}


@cache
def document() -> dict[str, Any]:
    """All of it."""
    schemas = _schemas()
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
        "webhooks": webhooks(schemas.references[Event, "serialization"]),
        "components": {
            "schemas": schemas.definitions,
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


def _schemas() -> Schemas:
    always = ((Problem, "serialization"), (Event, "serialization"))
    wanted: dict[tuple[type[BaseModel], str], None] = dict.fromkeys(always)
    for route in ROUTES:
        if route.gives:
            wanted[route.gives, "serialization"] = None
        for model in (route.body, route.form):
            if model:
                wanted[model, "validation"] = None
    found: Any
    found, whole = models_json_schema(list(wanted), ref_template=REF)  # type: ignore[arg-type]
    return Schemas({**found}, whole["$defs"])


def _operation(route: Route, schemas: Schemas) -> dict[str, Any]:
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
    for media_type, model in (("application/json", route.body), ("multipart/form-data", route.form)):
        if model:
            content = schemas.content(media_type, model, "validation")
            made["requestBody"] = {"required": True, "content": content}
    return made


def _places(route: Route) -> list[dict[str, Any]]:
    found = []
    for name in arguments(route):
        schema, about, example = ARGUMENTS[name]
        said = {"schema": schema, "description": about, "example": example}
        found.append({"name": name, "in": "path", "required": True, **said})
    return found


def _parameters(route: Route) -> list[dict[str, Any]]:
    found = []
    for name, schema in _fields(route.query).items():
        about = schema.pop("description")
        found.append({"name": name, "in": "query", "required": False, "schema": schema, "description": about})
    if route.keyed:
        key = {"type": "string", "minLength": 1, "maxLength": LONGEST_KEY, "pattern": "^[!-~]([ -~]*[!-~])?$"}
        about = "Repeated requests with the same key run only once and get the first response."
        found.append({"name": "Idempotency-Key", "in": "header", "schema": key, "description": about})
    if route.matches:
        about = "The ETag of the version you read, or `*`."
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


def _success(route: Route, schemas: Schemas) -> dict[str, Any]:
    made: dict[str, Any] = {"description": HTTPStatus(route.status).phrase, "headers": _headers(route)}
    if route.gives:
        made["content"] = schemas.content("application/json", route.gives, "serialization")
    elif route.file:
        binary = {} if route.file.startswith("text/") else {"format": "binary"}
        made["content"] = {route.file: {"schema": {"type": "string", **binary}}}
    return made


def _problem(status: int, schemas: Schemas) -> dict[str, Any]:
    headers = ["X-Request-ID", *(["Retry-After"] if status in (429, 503) else [])]
    made: dict[str, Any] = {"description": ABOUT[status], "headers": _referred(headers)}
    if status >= 400:
        made["content"] = schemas.content("application/problem+json", Problem, "serialization")
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
