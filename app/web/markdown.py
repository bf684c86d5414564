"""Texts and code of students and models as safe HTML: Markdown, highlighted lines, visible characters."""

from __future__ import annotations

import re
import time
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from io import StringIO

import nh3
from markdown_it import MarkdownIt
from markupsafe import Markup, escape
from pygments.formatters import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import Text, _TokenType

from app.web import maths
from grading.domain.document import Cell
from grading.shared.cache import BoundedCache

TAGS = set("p br em strong code pre ul ol li blockquote h3 h4 h5 h6 hr".split())
MARKDOWN_CHARS = 50_000
"""Longest text that is read as Markdown; a longer one is shown as it is."""
NESTED = 100
_TOO_DEEP = re.compile(r"^(?:[ \t]*(?:>|[-*+][ \t]|\d{1,9}[.)][ \t])){40}|^[ \t]{80,}[-*+>\d]", re.MULTILINE)
COLOURED = frozenset("python r sql java c cpp javascript typescript bash html latex markdown julia".split())
"""Languages that get colours. A notebook may name any; some lexers take very long on hostile text."""
COLOURED_CHARS = 50_000
"""Longest cell that gets colours."""
COLOURED_LINE = 1000
"""Longest line in it."""
COLOURING_S = 1.0
"""Seconds for the colours of a whole submission; what is left then stays plain."""
_HIGH = re.compile(r"<(/?)h[12]>")
"""Headings as high as those of the page, which are its own; in a text they are one lower."""
_TURNING = (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C)
_ZERO_WIDTH = (0x00AD, 0x034F, 0x115F, 0x1160, 0x180E, 0x200B, *range(0x2060, 0x2065), 0x3164, 0xFEFF, 0xFFA0)
_CONTROLS = (*range(0x09), 0x0B, 0x0C, *range(0x0E, 0x20), *range(0x7F, 0xA0))
_HALVES = range(0xD800, 0xE000)
"""Halves of characters, which a model may write and no page can be sent with."""
_UNSEEN = (*_CONTROLS, *_ZERO_WIDTH, *_TURNING, *_HALVES, *range(0xE0000, 0xE0080))
PLAIN = {code: f"⟨U+{code:04X}⟩" for code in _UNSEEN}
"""Characters that nobody sees or that turn the order of others, and what is shown in their place."""
_MARKED = {code: f'<span class="unseen">⟨U+{code:04X}⟩</span>' for code in _UNSEEN}
_PYTHON = re.compile(
    r"""
    (?P<c>\#[^\n]*+)
    | (?P<s>\b[bfru]{0,2}(?:'''(?:[^'\\]++|\\.|'(?!''))*+(?:''')?+|\"{3}(?:[^"\\]++|\\.|"(?!""))*+(?:\"{3})?+
        |'(?:[^'\\\n]++|\\.)*+'?+|"(?:[^"\\\n]++|\\.)*+"?+)
      | '''(?:[^'\\]++|\\.|'(?!''))*+(?:''')?+ | \"{3}(?:[^"\\]++|\\.|"(?!""))*+(?:\"{3})?+
      | '(?:[^'\\\n]++|\\.)*+'?+ | "(?:[^"\\\n]++|\\.)*+"?+)
    | (?P<mi>(?<![\w.])\d[\w.]*+)
    | (?P<name>[^\W\d]\w*+)
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
_R = re.compile(
    r"""
    (?P<c>\#[^\n]*+)
    | (?P<s>'(?:[^'\\]++|\\.)*+'?+ | "(?:[^"\\]++|\\.)*+"?+)
    | (?P<mi>(?<![\w.])\d[\w.]*+)
    | (?P<name>[^\W\d][\w.]*+)
    """,
    re.VERBOSE | re.DOTALL,
)
_KEYWORDS: Mapping[str, frozenset[str]] = {
    "python": frozenset(
        "and as assert async await break case class continue def del elif else except finally for from "
        "global if import in is lambda match nonlocal not or pass raise return try while with yield "
        "True False None".split()
    ),
    "r": frozenset(
        "break else for function if in next repeat return while TRUE FALSE NULL NA NaN Inf library".split()
    ),
}
_TOKENS = {"python": _PYTHON, "r": _R}


_read: BoundedCache[Markup] = BoundedCache(8 * 1024 * 1024)
_lit: BoundedCache[list[Markup]] = BoundedCache(32 * 1024 * 1024)
"""Texts and cells as HTML, by their words; weights are characters."""


def markdown(text: str) -> Markup:
    """A model's or a person's Markdown as clean HTML with MathML: no pictures, links, HTML or scripts."""
    return _read.get(text, len(text) + 100, lambda: _html(text))


def _html(text: str) -> Markup:
    if not readable(text):
        return Markup("<p>{}</p>").format(visible(text))
    html = _HIGH.sub(r"<\1h3>", reader().render(visible(text)))
    if "<math" in html:  # as text it reads &lt;math
        return maths.cleaned(html, TAGS)
    return Markup(nh3.clean(html, tags=TAGS, attributes={}, link_rel=None))  # noqa: S704 - cleaned


def readable(text: str) -> bool:
    """Whether Markdown keeps all of the text: of what lies too deep in lists and quotes it drops some."""
    return len(text) <= MARKDOWN_CHARS and _TOO_DEEP.search(text) is None


@lru_cache(maxsize=1)
def reader() -> MarkdownIt:
    """Reads Markdown without pictures, links and HTML; made once, it keeps nothing of what it reads."""
    options = {"html": False, "maxNesting": NESTED}
    return maths.read_formulas(MarkdownIt("commonmark", options).disable(["image", "link", "autolink"]))


def visible(text: str) -> str:
    """The text with names in place of characters that nobody sees, such as those that turn the line round."""
    return text if text.isascii() and text.isprintable() else text.translate(PLAIN)


def one_line(text: str, most: int = 200) -> str:
    """A name or title that cannot disturb what stands around it."""
    line = visible(" ".join(text.split()))
    return line if len(line) <= most else f"{line[: most - 1]}…"


def highlighted(cell: Cell, lines: Sequence[str], until: float) -> list[Markup]:
    """Each line as HTML: with colours where that is cheap and the time is not over, else only escaped."""
    source = "\n".join(lines)
    language = cell.language if cell.kind == "code" else "text"
    key = (language, len(lines), source)
    found = _lit.find(key)
    if found is None:
        found = _highlighted(language, source, lines, until)
        if time.monotonic() < until:  # else it may lack colours
            _lit.put(key, 4 * len(source) + 100, found)
    return found


def _highlighted(language: str, source: str, lines: Sequence[str], until: float) -> list[Markup]:
    cheap = len(source) <= COLOURED_CHARS and max(map(len, lines), default=0) <= COLOURED_LINE
    if language not in COLOURED or not cheap:
        return [_visible_html(escape(line)) for line in lines]
    if can_highlight(language):
        return [_visible_html(Markup(line)) for line in highlight_lines(language, source)]  # noqa: S704 - escaped
    html = StringIO()
    _formatter().format(_tokens(_lexer(language), source, until), html)
    coloured = html.getvalue().split("\n")
    coloured = (coloured + [""] * len(lines))[: len(lines)]
    return [_visible_html(Markup(line)) for line in coloured]  # noqa: S704 - Pygments escapes


@lru_cache(maxsize=len(COLOURED))
def _lexer(language: str) -> Lexer:
    return get_lexer_by_name(language, stripnl=False, ensurenl=False)


@lru_cache(maxsize=1)
def _formatter() -> HtmlFormatter[str]:
    return HtmlFormatter(nowrap=True)


def _visible_html(line: Markup) -> Markup:
    """HTML whose unseen characters are shown by name; they are never part of markup."""
    return line if line.isascii() and line.isprintable() else Markup(line.translate(_MARKED))  # noqa: S704


def _tokens(lexer: Lexer, source: str, until: float) -> Iterator[tuple[_TokenType, str]]:
    """The tokens of a source; when the time is over, the rest as one."""
    at = 0
    for start, kind, text in lexer.get_tokens_unprocessed(source):
        if time.monotonic() > until:
            break
        at = start + len(text)
        yield kind, text
    if at < len(source):
        yield Text, source[at:]


def beyond_fonts(text: str) -> bool:
    """Whether the fonts of a PDF may lack some of its signs: those of East Asia, and little pictures."""
    return not text.isascii() and any(
        char > "\u2e7f" and unicodedata.category(char) in ("Lo", "So") for char in text
    )


def can_highlight(language: str) -> bool:
    """Whether there are colours for it here."""
    return language in _TOKENS


def highlight_lines(language: str, source: str) -> list[str]:
    """Each line of the source as HTML. The language is one that `can_highlight` accepts."""
    return "".join(_highlighted_pieces(language, source)).split("\n")


def _highlighted_pieces(language: str, source: str) -> Iterator[str]:
    keywords, at = _KEYWORDS[language], 0
    for found in _TOKENS[language].finditer(source):
        start, end = found.span()
        kind, text = found.lastgroup, found[0]
        if kind == "name":
            kind = "k" if text in keywords else "nf" if source[end : end + 1] == "(" else None
        if kind is None:
            continue
        if start > at:
            yield str(escape(source[at:start]))
        yield "\n".join(f'<span class="{kind}">{escape(line)}</span>' for line in text.split("\n"))
        at = end
    if at < len(source):
        yield str(escape(source[at:]))
