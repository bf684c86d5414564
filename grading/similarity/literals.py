"""One spelling for literals that say the same: strings whatever their quotes, numbers however written."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from grading.shared import python_syntax

if TYPE_CHECKING:
    from tree_sitter import Node

LONGEST = 4_000
"""Bytes of a literal that is read; a longer one stays as it is written."""
KINDS = frozenset({"integer", "float", "complex", "string"})
"""Nodes that are literals."""


def canonical(node: Node, language: str) -> str | None:
    """A literal as it is compared, or nothing for strings with code in them. The node is of `KINDS`."""
    if node.type == "string" and any(one.type == "interpolation" for one in node.named_children):
        return None
    text = (node.text or b"").decode("utf-8", "replace")
    if len(text) > LONGEST:
        return text
    if language == "python":
        return _python(text)
    if language == "r":
        return _r_string(node, text) if node.type == "string" else _r_number(text)
    return text


@lru_cache(maxsize=4096)
def _python(text: str) -> str:
    try:
        return repr(python_syntax.literal(text))
    except (ValueError, SyntaxError):
        return text


def _r_string(node: Node, text: str) -> str:
    inner = next((one for one in node.named_children if one.type == "string_content"), None)
    if text[:1] in "rR":
        return text
    content = "" if inner is None else (inner.text or b"").decode("utf-8", "replace")
    return f'"{content}"' if "\\" in content else repr(content)


def _r_number(text: str) -> str:
    whole = text.endswith("L")
    bare = text.removesuffix("L")
    try:
        value = float(int(bare, 16)) if bare[:2].lower() == "0x" else float(bare)
    except ValueError:
        return text
    return f"{value!r}L" if whole else repr(value)
