"""Formulas as data for the template of a PDF: the parts of their MathML, without markup."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

from app.web import maths

Node = dict[str, Any]
"""`k` is letter, word, sign or space, row, lr, frac, stack, sqrt, root, attach, limits, accent or table."""
DEEPEST = 20
"""Elements in each other; the template calls itself for each."""
_ACCENTS = frozenset("¯^ˆ~˜→.˙¨ˇ´`˘⃗")
_INVISIBLE = frozenset("\u2061\u2062\u2063\u2064")


def formula(latex: str, *, display: bool) -> Node | None:
    """The parts of a formula; nothing where it is shown as it was written."""
    html = maths.mathml(latex, display=display)
    if html is None:
        return None
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return None if reader.deepest > DEEPEST else _row(reader.open[0].inside)


@dataclass
class _Element:
    tag: str
    attributes: dict[str, str | None] = field(default_factory=dict)
    inside: list[_Element] = field(default_factory=list)
    text: str = ""


class _Reader(HTMLParser):
    """Reads MathML, which the converter wrote, into a tree."""

    def __init__(self) -> None:
        super().__init__()
        self.open = [_Element("")]
        self.deepest = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Go into an element."""
        self.open.append(_Element(tag, dict(attrs)))
        self.open[-2].inside.append(self.open[-1])
        self.deepest = max(self.deepest, len(self.open))

    def handle_endtag(self, tag: str) -> None:
        """Come out of it."""
        del tag
        self.open = self.open[:-1] or self.open

    def handle_data(self, data: str) -> None:
        """Keep its text."""
        self.open[-1].text += data


def _row(elements: list[_Element]) -> Node:
    """Several parts; between signs that grow with them where they begin and end with such."""
    made = [_node(one) for one in elements]
    kept = [one for one in made if one]
    if len(kept) == 1:
        return kept[0]
    grows = len(elements) > 2 and all(
        one.tag == "mo" and one.attributes.get("stretchy") != "false" for one in (elements[0], elements[-1])
    )
    return {"k": "lr" if grows else "row", "of": kept}


def _node(one: _Element) -> Node:
    """One part; an empty one stands for nothing."""
    if one.tag in ("mi", "mn", "mo", "mtext"):
        return _leaf(one)
    if one.tag == "mspace":
        width = (one.attributes.get("width") or "").removesuffix("em")
        return {"k": "space", "w": min(float(width), 9.0)} if width.replace(".", "", 1).isdecimal() else {}
    if one.tag == "mphantom":
        return {}
    if one.tag == "mtable":
        return {"k": "table", "rows": [[_row(cell.inside) for cell in row.inside] for row in one.inside]}
    if one.tag == "msqrt":
        return {"k": "sqrt", "of": [_row(one.inside)]}
    if one.tag in _PARTS and len(one.inside) == len(_PARTS[one.tag]):
        return _parted(one)
    return _row(one.inside)


def _leaf(one: _Element) -> Node:
    text = one.text.strip() if one.tag != "mtext" else one.text.replace("\u00a0", " ")
    if not text or text in _INVISIBLE:
        return {}
    if one.tag == "mo":
        return {"k": "sign", "t": text}
    alone = one.tag == "mi" and len(text) == 1 and one.attributes.get("mathvariant") != "normal"
    return {"k": "letter" if alone else "word", "t": text}


_PARTS = {
    "mfrac": ("of", "of"),
    "mroot": ("of", "of"),
    "msub": ("of", "b"),
    "msup": ("of", "t"),
    "msubsup": ("of", "b", "t"),
    "munder": ("of", "b"),
    "mover": ("of", "t"),
    "munderover": ("of", "b", "t"),
}
"""Elements with parts of their own meaning, and where the template finds each."""


def _parted(one: _Element) -> Node:
    parts = [_row([part]) for part in one.inside]
    if one.tag == "mfrac":
        return {"k": "stack" if one.attributes.get("linethickness") == "0" else "frac", "of": parts}
    if one.tag == "mroot":
        return {"k": "root", "of": parts}
    if one.tag == "mover" and parts[1].get("k") == "sign" and parts[1]["t"] in _ACCENTS:
        return {"k": "accent", "of": parts[:1], "t": parts[1]["t"]}
    kind = "attach" if one.tag.startswith("ms") else "limits"
    return {"k": kind, "of": parts[:1], **dict(zip(_PARTS[one.tag][1:], parts[1:], strict=True))}
