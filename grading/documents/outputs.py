"""The outputs of notebook cells, as text."""

from __future__ import annotations

import html
import json
import re
from typing import Any, Literal

from grading.documents.text import strip_ansi
from grading.domain.document import Output

_PICTURES = ("image/", "application/vnd.plotly", "application/vnd.vega", "application/vnd.bokeh")
_HTML_SHOWN = 60_000
_BLOCK = re.compile(
    r"</?(?:p|div|tr|li|ul|ol|table|thead|tbody|br|h[1-6]|pre|caption)\b[^<>]*>", re.IGNORECASE
)
_CELL = re.compile(r"</t[dh]\s*>", re.IGNORECASE)
_TAG = re.compile(r"<[/!a-zA-Z][^<>]*>")


def read_outputs(raw: Any, at_most: int) -> tuple[tuple[Output, ...], int]:
    """The outputs of a cell in nbformat 4 and how many characters were left out to keep to `at_most`."""
    if not isinstance(raw, list):
        return (), 0
    found: list[Output] = []
    streams: list[str | None] = []
    for item in raw:
        output = _read(item) if isinstance(item, dict) else None
        if output is None:
            continue
        stream = joined(item.get("name")) if output.kind == "stream" else None
        if stream is not None and streams and streams[-1] == stream:
            found[-1] = Output(kind="stream", text=found[-1].text + output.text)
            continue
        found.append(output)
        streams.append(stream)
    return _shorten(found, at_most)


def joined(value: Any) -> str:
    """A text that notebooks store as a string or as a list of lines."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(part for part in value if isinstance(part, str))
    return ""


def html_text(source: str) -> str:
    """What an HTML output says, without tags; cells of tables are tab-separated. Linear in its length."""
    source = source[:_HTML_SHOWN]
    for element in ("script", "style"):
        source = _without(source, element)
    source = _CELL.sub("\t", source)
    source = _TAG.sub("", _BLOCK.sub("\n", source))
    lines = (re.sub(r"[ \xa0]+", " ", line).strip() for line in html.unescape(source).split("\n"))
    return "\n".join(line for line in lines if line)


def _without(source: str, element: str) -> str:
    lower = source.lower()
    if len(lower) != len(source):
        return source
    kept, at = [], 0
    while (start := lower.find(f"<{element}", at)) >= 0:
        kept.append(source[at:start])
        end = lower.find(f"</{element}", start)
        if end < 0:
            return "".join(kept)
        at = end
    kept.append(source[at:])
    return "".join(kept)


def _read(item: dict[str, Any]) -> Output | None:
    kind = item.get("output_type")
    if kind == "stream":
        return Output(kind="stream", text=strip_ansi(joined(item.get("text"))))
    if kind == "error":
        return Output(kind="error", text=_error(item))
    if kind == "execute_result":
        return _display(item, "result")
    if kind in ("display_data", "update_display_data"):
        return _display(item, "display")
    return None


def _error(item: dict[str, Any]) -> str:
    head = ": ".join(filter(None, (joined(item.get("ename")), joined(item.get("evalue")))))
    lines = item.get("traceback")
    trace = "\n".join(line for line in lines if isinstance(line, str)) if isinstance(lines, list) else ""
    evalue = joined(item.get("evalue")).strip()
    return strip_ansi(
        trace if trace and evalue in strip_ansi(trace) else "\n".join(filter(None, (head, trace)))
    )


def _display(item: dict[str, Any], kind: Literal["result", "display"]) -> Output:
    data = item.get("data")
    if not isinstance(data, dict):
        return Output(kind=kind)
    text = joined(data.get("text/plain"))
    if not text.strip():
        text = html_text(joined(data.get("text/html")))
    for mime in ("text/markdown", "text/latex"):
        text = text if text.strip() else joined(data.get(mime))
    if not text.strip() and "application/json" in data:
        text = _as_json(data["application/json"])
    return Output(
        kind=kind, text=strip_ansi(text), image=any(str(mime).startswith(_PICTURES) for mime in data)
    )


def _as_json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (RecursionError, ValueError):
        return ""


def _shorten(outputs: list[Output], at_most: int) -> tuple[tuple[Output, ...], int]:
    """Keeps the beginning (three quarters) and the end of what is too long, and says so in its place."""
    left, cut, kept = at_most, 0, []
    for output in outputs:
        if len(output.text) > left:
            head, tail = left * 3 // 4, left // 4
            gone = len(output.text) - head - tail
            mark = f"\n[… {gone} characters left out …]\n"
            end = output.text[-tail:] if tail else ""
            output = Output(kind=output.kind, text=output.text[:head] + mark + end, image=output.image)
            cut, left = cut + gone, 0
        else:
            left -= len(output.text)
        kept.append(output)
    return tuple(kept), cut
