"""Writes JSON-like values as TOML that people can read: tables as tables, what lies deeper in one line.

tomlkit is not used: no file is edited in place, so there is no style to preserve, and building its documents
takes as many lines and ten times as long for the same text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def written(table: Mapping[str, Any]) -> str:
    """The table as a TOML document. Entries without a value are left out: TOML has no word for it."""
    return "\n".join(_table(table, "")).strip("\n") + "\n"


def _table(table: Mapping[str, Any], name: str) -> Iterator[str]:
    deeper = {}
    for key, value in table.items():
        if _is_tables(value) or (isinstance(value, Mapping) and not name):
            deeper[key] = value
        elif value is not None:
            yield f"{_key(key)} = {_value(value)}"
    for key, value in deeper.items():
        inner = f"{name}.{_key(key)}" if name else _key(key)
        for one in value if _is_tables(value) else (value,):
            yield ""
            yield f"[[{inner}]]" if _is_tables(value) else f"[{inner}]"
            yield from _table(one, inner)


def _is_tables(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(one, Mapping) for one in value)


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _text(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        inside = ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items() if v is not None)
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(one) for one in value if one is not None)}]"
    return repr(value)


def _text(text: str) -> str:
    # TOML's escapes are JSON's, but for DEL; halves of characters are no text there
    plain = text.encode("utf-8", "replace").decode("utf-8")
    return json.dumps(plain, ensure_ascii=False).replace("\x7f", "\\u007f")
