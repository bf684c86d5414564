"""The API's description as a page for people, made from the same document as programs read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from flask import Blueprint, render_template
from markupsafe import Markup

from app.api.openapi import TAGS, document
from app.web import auth
from app.web.i18n import current

pages = Blueprint("api_docs", __name__)


@dataclass(frozen=True)
class Named:
    """A parameter, or a field of a body or an answer."""

    name: str
    kind: str
    needed: bool
    about: str


@dataclass(frozen=True)
class Operation:
    """One thing that can be asked for."""

    anchor: str
    method: str
    path: str
    words: str
    scopes: tuple[str, ...]
    parameters: tuple[Named, ...]
    body: tuple[Named, ...]
    gives: tuple[Named, ...]
    file: str
    """The media type of what is no JSON."""
    statuses: tuple[tuple[str, str], ...]
    deprecated: bool


@pages.get("/help/api")
def page() -> str:
    """All that the API can be asked for."""
    auth.require(auth.actor(), "tokens.own")
    return render_template("api/docs.html", listed=_listed(current()))


@cache
def _listed(_language: str) -> Markup:
    """The same for all readers of a language, and long."""
    return Markup(render_template("api/_reference.html", tags=operations_by_tag()))  # noqa: S704 - a rendered template


@cache
def operations_by_tag() -> tuple[tuple[str, str, tuple[Operation, ...]], ...]:
    """Name, what it is about, and operations of each tag."""
    whole = document()
    found: dict[str, list[Operation]] = {name: [] for name in TAGS}
    for path, methods in whole["paths"].items():
        for method, operation in methods.items():
            found[operation["tags"][0]].append(_operation(path, method, operation, whole))
    return tuple((name, about, tuple(found[name])) for name, about in TAGS.items())


def _operation(path: str, method: str, operation: dict[str, Any], whole: dict[str, Any]) -> Operation:
    success = next(one for status, one in operation["responses"].items() if status < "300")
    content: dict[str, Any] = success.get("content", {})
    media_types: dict[str, Any] = operation.get("requestBody", {}).get("content", {})
    return Operation(
        anchor=operation["operationId"],
        method=method.upper(),
        path=path,
        words=operation["summary"],
        scopes=tuple(operation["security"][0]["token"]) if operation["security"] else (),
        parameters=tuple(map(_parameter, operation.get("parameters", ()))),
        body=_fields(next((one["schema"] for one in media_types.values()), {}), whole),
        gives=_fields(content.get("application/json", {}).get("schema", {}), whole),
        file=next((kind for kind in content if kind != "application/json"), ""),
        statuses=tuple((status, one["description"]) for status, one in operation["responses"].items()),
        deprecated=operation.get("deprecated", False),
    )


def _parameter(one: dict[str, Any]) -> Named:
    about = one.get("description", "")
    return Named(one["name"], _kind(one["schema"], {}), bool(one.get("required")), about)


def _fields(schema: dict[str, Any], whole: dict[str, Any]) -> tuple[Named, ...]:
    """The fields of an object."""
    found = _resolved(schema, whole)
    needed = found.get("required", ())
    return tuple(
        Named(name, _kind(one, whole), name in needed, one.get("description", ""))
        for name, one in found.get("properties", {}).items()
    )


def _resolved(schema: dict[str, Any], whole: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in schema:
        return schema
    found: dict[str, Any] = whole["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return found


def _kind(schema: dict[str, Any], whole: dict[str, Any]) -> str:
    """What a value may be, in a few words."""
    if "$ref" in schema:
        inside = _resolved(schema, whole).get("properties")
        return "{ " + ", ".join(inside) + " }" if inside else "object"
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(_kind(one, whole) for one in schema["anyOf"]))
    if "enum" in schema:
        return " | ".join(f'"{one}"' for one in schema["enum"])
    if "const" in schema:
        return f'"{schema["const"]}"'
    if schema.get("type") == "array":
        return f"[ {_kind(schema.get('items', {}), whole)} ]"
    return str(schema.get("format") or schema.get("type") or "any")
