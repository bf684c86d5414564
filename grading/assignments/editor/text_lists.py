"""Lists and tables as text that people type, one entry a line, and back without losing anything."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Container, Mapping, Sequence
from typing import Any

from grading.domain.base_value import InvalidValue
from grading.domain.messages import define_message

NO_SIGN = define_message("form.no_sign", "write a name, = and a value, such as: total = 42")
NO_JSON = define_message("form.no_json", "begins with { and is not valid JSON")
NO_TEXTS = define_message("form.no_texts", "must be pairs of a name and a text")
NO_NUMBER = define_message("form.no_number", "“%(text)s” is not a number")
ENDLESS = define_message("form.endless", "must be a finite number")
NOT_WHOLE = define_message("form.not_whole", "must be a whole number")


class NotReadable(InvalidValue):
    """What was typed is not what the field takes; the words say what it takes."""


def lines(text: str) -> list[str]:
    """The entries of a text, one a line; where that would lose something, a list as JSON writes it."""
    if text.lstrip().startswith("["):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            found = None  # a pattern such as [abc]
        if isinstance(found, list) and all(isinstance(one, str) for one in found):
            return found
    return [line.strip() for line in text.split("\n") if line.strip()]


def lines_of(entries: Sequence[str]) -> str:
    """The text that `lines` reads as exactly these."""
    text = "\n".join(entries)
    return text if lines(text) == list(entries) else json.dumps(list(entries), ensure_ascii=False, indent=1)


def pairs(text: str, *, several: bool) -> dict[str, Any]:
    """A name and what belongs to it a line, `name = text`, with `several` texts parted by commas."""
    if text.lstrip().startswith("{"):
        return _table(text, several)
    found: dict[str, Any] = {}
    for line in text.split("\n"):
        if not line.strip():
            continue
        name, sign, value = line.partition("=")
        if not sign or not name.strip():
            raise NotReadable(NO_SIGN())
        words = [one.strip() for one in value.split(",") if one.strip()]
        found[name.strip()] = words if several else value.strip()
    return found


def _table(text: str, several: bool) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise NotReadable(NO_JSON()) from None
    fits = (isinstance(one, list if several else str) for one in found.values())
    if not all(fits):
        raise NotReadable(NO_TEXTS())
    read: dict[str, Any] = found
    return read


def pairs_of(table: Mapping[str, Any], *, several: bool) -> str:
    """The text that `pairs` reads as exactly this."""
    meant = {name: list(value) if several else value for name, value in table.items()}
    rows = [f"{name} = {', '.join(value) if several else value}" for name, value in meant.items()]
    text = "\n".join(rows)
    try:
        if pairs(text, several=several) == meant:
            return text
    except NotReadable:
        pass  # a name with = in it
    return json.dumps(meant, ensure_ascii=False, indent=1)


def number(value: float) -> str:
    """As people write it: 3, 0.5, 1e-09."""
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(float(value))


def read_number(text: str, *, whole: bool = False) -> float | int:
    """A number, with a point or a comma. Raises NotReadable."""
    plain = text.strip().replace(",", ".")
    try:
        value = float(plain)
    except ValueError:
        raise NotReadable(NO_NUMBER(text=text.strip()[:40])) from None
    if not math.isfinite(value):
        raise NotReadable(ENDLESS())
    if whole and not value.is_integer():
        raise NotReadable(NOT_WHOLE())
    return int(value) if value.is_integer() and abs(value) < 1e15 else value


def slug(words: str) -> str:
    """Small letters, digits and hyphens of some words; may be empty."""
    plain = unicodedata.normalize("NFKD", words).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:48].strip("-")


def unused(wanted: str, taken: Container[Any]) -> str:
    """The wanted name, or with a number behind it."""
    names = (wanted if n == 1 else f"{wanted}-{n}" for n in range(1, 10_000))
    return next(name for name in names if name not in taken)
