"""Markdown as plain pieces for a PDF: nothing in them is markup any more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from markdown_it.token import Token

from app.web.markdown import readable, reader, seen

Block = dict[str, Any]
"""`kind` is text, head, item (with `mark` and `depth`) or code; it has `runs` of (words, how), or `text`."""
_HOW = {"strong_open": "b", "em_open": "i", "strong_close": "", "em_close": ""}


def blocks(text: str) -> list[Block]:
    """What the text says, block by block."""
    text = seen(text.strip())
    if not text:
        return []
    if not readable(text):
        return [{"kind": "text", "runs": [[text, ""]]}]
    return list(_blocks(reader().parse(text)))


def plain(text: str) -> list[Block]:
    """Text as it is."""
    return [{"kind": "text", "runs": [[seen(text), ""]]}] if text.strip() else []


def _blocks(tokens: Sequence[Token]) -> Iterator[Block]:
    depth, marks, mark, head = 0, [], "", False
    for token in tokens:
        if token.type in ("bullet_list_open", "ordered_list_open"):
            depth += 1
            marks.append(int(token.attrGet("start") or 1) if token.type.startswith("ordered") else None)
        elif token.type in ("bullet_list_close", "ordered_list_close"):
            depth -= 1
            marks.pop()
        elif token.type == "list_item_open":
            mark = "•" if marks[-1] is None else f"{marks[-1]}."
            marks[-1] = None if marks[-1] is None else marks[-1] + 1
        elif token.type in ("heading_open", "heading_close"):
            head = token.type == "heading_open"
        elif token.type in ("fence", "code_block"):
            yield {"kind": "code", "text": token.content.rstrip("\n")}
        elif token.type == "inline":
            runs = _runs(token.children or [])
            kind = "item" if depth else "head" if head else "text"
            yield {"kind": kind, "runs": runs, "depth": max(0, min(depth, 6) - 1), "mark": mark}
            mark = ""


def _runs(children: Sequence[Token]) -> list[list[str]]:
    runs: list[list[str]] = []
    how = ""
    for child in children:
        if child.type in _HOW:
            how = _HOW[child.type]
        elif child.type == "code_inline":
            runs.append([child.content, "c"])
        elif child.type in ("softbreak", "hardbreak"):
            runs.append([" " if child.type == "softbreak" else "\n", how])
        elif child.content:
            runs.append([child.content, how])
    return runs
