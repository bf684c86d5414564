"""Texts that another server says of somebody, made fit for a line of ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from unicodedata import category


def text_of(value: object, longest: int = 200) -> str:
    """A text for one line: blanks of all kinds become spaces, control characters go."""
    if not isinstance(value, str):
        return ""
    kept = (" " if one.isspace() or category(one).startswith("Z") else one for one in value)
    return " ".join("".join(one for one in kept if one.isprintable()).split())[:longest]


def name_of(claims: Mapping[str, Any]) -> str:
    """Somebody's name, or what is said of its parts; empty where the server keeps it to itself."""
    parts = f"{text_of(claims.get('given_name'))} {text_of(claims.get('family_name'))}"
    return text_of(claims.get("name")) or text_of(parts)
