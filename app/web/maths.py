"""Formulas in Markdown: what is one between dollar signs, and its MathML."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

import nh3
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from markupsafe import Markup, escape
from math_core import LatexError, LatexToMathML

TAGS = frozenset(
    "math mrow mi mn mo mtext mspace mfrac msqrt mroot msub msup msubsup munder mover munderover mtable "
    "mtr mtd mstyle mpadded mphantom".split()
)
"""Elements of the MathML that is made here."""
ATTRIBUTES: Mapping[str, frozenset[str]] = {
    "math": frozenset({"display"}),
    "mi": frozenset({"mathvariant"}),
    "mo": frozenset(
        "stretchy form fence separator largeop movablelimits symmetric lspace rspace minsize maxsize".split()
    ),
    "mspace": frozenset({"width"}),
    "mfrac": frozenset({"linethickness", "displaystyle"}),
    "mover": frozenset({"accent"}),
    "munder": frozenset({"accentunder"}),
    "munderover": frozenset({"accent", "accentunder"}),
    "mtable": frozenset({"displaystyle", "scriptlevel"}),
    "mtd": frozenset({"class"}),
    "mstyle": frozenset({"displaystyle", "scriptlevel"}),
}
"""Of these elements, those that browsers need; `_allowed` says which values."""
LATEX_CHARS, COMMANDS, NESTED = 1_000, 200, 30
"""Characters, commands and braces in each other of a formula; a larger one is shown as it was written."""
_VALUE = re.compile(
    r"true|false|block|inline|normal|prefix|infix|postfix|[0-2]|[0-9](?:\.[0-9]{1,9})?em|tex-[a-z-]+"
)
_INLINE = re.compile(
    r"\$\$(?P<block>(?=\s*+[^\s$])(?:[^$\\]|\\.)++)\$\$"
    r"|(?<![\w$)\]])\$(?!\s)(?P<inline>(?:[^$\\]|\\.)++)(?<!\s)\$(?![\d$])",
    re.DOTALL,
)
"""As in pandoc: no blank within the signs and no digit behind them, so that “$5 and $6” stays text. No letter
or closing bracket stands before them either: `df$x and rows[1]$y` is R.
"""
_STYLE = re.compile(r' style="(text-align: (left|right);[^"]*)"')


def read_formulas(reader: MarkdownIt) -> MarkdownIt:
    """Let a reader of Markdown know formulas: tokens `math_inline` and `math_block`."""
    reader.inline.ruler.before("escape", "math_inline", _read_inline)
    reader.block.ruler.before(
        "fence", "math_block", _read_block, {"alt": ["paragraph", "reference", "blockquote", "list"]}
    )
    reader.add_render_rule("math_inline", _rendered)
    reader.add_render_rule("math_block", _rendered)
    return reader


def _read_inline(state: StateInline, silent: bool) -> bool:
    found = _INLINE.match(state.src, state.pos)
    if found is None:
        return False
    if not silent:
        token = state.push("math_inline", "math", 0)
        token.content, token.markup = (
            (found["block"] or found["inline"]).strip(),
            "$$" if found["block"] else "$",
        )
    state.pos = found.end()
    return True


def _read_block(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    last = None if state.is_code_block(start) else _last_line(state, start, end)
    if last is None:
        return False
    content = state.getLines(start, last + 1, state.blkIndent, False).strip()[2:-2].strip()
    if not content:
        return False
    if not silent:
        token = state.push("math_block", "math", 0)
        token.block, token.content, token.markup, token.map = True, content, "$$", [start, last + 1]
    state.line = last + 1
    return True


def _last_line(state: StateBlock, start: int, end: int) -> int | None:
    """Where a formula ends that begins with this line: at the first line that ends with the sign again."""
    for line in range(start, end):
        text = state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]].rstrip()
        if line == start:
            if not text.startswith("$$"):
                return None
            text = text[2:]
        elif not text or state.sCount[line] < state.blkIndent:
            return None
        if "$$" in text:
            return line if text.index("$$") == len(text) - 2 else None
    return None


def _rendered(
    renderer: RendererHTML, tokens: list[Token], index: int, options: OptionsDict, env: EnvType
) -> str:
    token = tokens[index]
    html = mathml(token.content, display=token.markup == "$$")
    if html is None:
        html = f"<code>{escape(source(token))}</code>"
        return f"<pre>{html}</pre>\n" if token.block else html
    return f"<p>{html}</p>\n" if token.block else html


def source(token: Token) -> str:
    """A formula as it was written."""
    return f"{token.markup}{token.content}{token.markup}"


def mathml(latex: str, *, display: bool) -> str | None:
    """The formula as MathML, which is still to be sanitised; nothing where it is too large or no LaTeX."""
    if len(latex) > LATEX_CHARS or latex.count("\\") > COMMANDS or _depth(latex) > NESTED:
        return None
    try:
        html: str = _converter().convert_with_local_state(latex, displaystyle=display)
    except LatexError:
        return None
    return _STYLE.sub(_as_class, html)


def _depth(latex: str) -> int:
    depth = deepest = 0
    for char in latex:
        depth += (char == "{") - (char == "}")
        deepest = max(deepest, depth)
    return deepest


def _as_class(found: re.Match[str]) -> str:
    """The alignment of a cell, for which no page allows a style of its own."""
    flush = f"padding-{found[2]}: 0" in found[1]
    return f' class="tex-{found[2]}"' if flush else f' class="tex-{found[2]}-cell"'


@lru_cache(maxsize=1)
def _converter() -> LatexToMathML:
    """Without macros: no formula may grow by expanding them."""
    return LatexToMathML(max_expansions=0, fancy_error=False)


def cleaned(html: str, tags: set[str]) -> Markup:
    """HTML of these elements and of MathML's, and nothing else."""
    attributes = {tag: set(names) for tag, names in ATTRIBUTES.items()}
    safe = nh3.clean(html, tags=tags | TAGS, attributes=attributes, attribute_filter=_allowed, link_rel=None)
    return Markup(safe)  # noqa: S704 - cleaned


def _allowed(_tag: str, _name: str, value: str) -> str | None:
    """The value of an attribute where it is a word that is known, or a small length."""
    return value if _VALUE.fullmatch(value) else None
