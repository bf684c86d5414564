"""Makes hostile text harmless for prompts and output: invisible characters, chat markers, length."""

from __future__ import annotations

import re
import unicodedata

SHORTEST = 3
"""Characters that a quote must have to be looked for."""

_INVISIBLE = re.compile(
    "["
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"  # fillers and selectors that show nothing
    "\u200b-\u200f\u202a-\u202e\u2060-\u206f"  # zero width, bidirectional controls
    "\ufe00-\ufe0f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e0fff"  # tags and further variation selectors
    "\ud800-\udfff"
    "]"
)
# What carries text or turns its order. Joiners, soft hyphens and variation selectors belong to ordinary
# writing; so do tags after a black flag, which make the flag of a region.
_SMUGGLED = re.compile("[\u180e\u200b\u2060-\u2064\ufeff]")
_TAGS = re.compile("(\U0001f3f4[\U000e0020-\U000e007f]{1,8})|[\U000e0000-\U000e007f]")
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_UNSPACED = re.compile("[\u0e00-\u109f\u1780-\u17ff]")
"""Letters of languages that put zero-width spaces between words."""
_TURNING = re.compile("[\u202a-\u202e\u2066-\u2069]")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_LINE_END = re.compile("\r\n|[\r\x85\u2028\u2029]")
# Markers that chat templates turn into role changes when they reach a tokenizer as text.
_CHAT_MARK = re.compile(
    r"<(?=[|｜][\w▁ -]{1,40}[|｜]>|/?(?:start_of_turn|end_of_turn|bos|eos|s|think|tool_call|tool_response)>)"
    r"|\[(?=/?(?:INST|SYSTEM_PROMPT|TOOL_CALLS)\])",
    re.IGNORECASE,
)
_QUOTE_MARKS = str.maketrans({"‘": "'", "’": "'", "‚": "'", "“": '"', "”": '"', "„": '"', "`": "'", "´": "'"})
_DASHES = str.maketrans({"–": "-", "—": "-", "−": "-", "‐": "-", "‑": "-"})


def visible(text: str) -> str:
    """Without characters a person does not see and control characters; newline and tab stay."""
    text = _LINE_END.sub("\n", text)
    return _CONTROL.sub("", _INVISIBLE.sub("", text))


def smuggled(line: str) -> int:
    """How many of a line's invisible characters ordinary writing does not need.

    Those that turn the reading direction belong in lines with letters written from right to left, zero-width
    spaces in languages without visible ones.
    """
    if line.isascii():
        return 0
    count = sum(not flag[1] for flag in _TAGS.finditer(line))
    count += 0 if _UNSPACED.search(line) else len(_SMUGGLED.findall(line))
    return count + (0 if _RIGHT_TO_LEFT.search(line) else len(_TURNING.findall(line)))


def defuse(text: str, nonce: str) -> str:
    """Student text for a prompt: visible characters, no chat markers, no nonce."""
    text = visible(text)
    while nonce and nonce.lower() in text.lower():  # again, as taking one out may join the halves of another
        text = re.sub(re.escape(nonce), "", text, flags=re.IGNORECASE)
    return _CHAT_MARK.sub(lambda m: m.group() + " ", text)


def normal(text: str) -> str:
    """For comparing: composed, lower case, plain quotes and dashes, single blanks."""
    text = unicodedata.normalize("NFKC", visible(text)).translate(_QUOTE_MARKS).translate(_DASHES)
    return " ".join(text.lower().split())


def flat(text: str) -> str:
    """On one line, with single blanks."""
    return " ".join(text.split())


def clip(text: str, limit: int) -> str:
    """At most `limit` characters, cut at a blank with an ellipsis where something is left out."""
    text = text.strip()
    if len(text) <= limit:
        return text
    cut = text[: max(0, limit - 1)]
    space = cut.rfind(" ")
    return (cut[:space] if space > limit // 2 else cut).rstrip(" ,;:") + "…"


def head_and_tail(lines: tuple[str, ...], keep: int) -> tuple[str, ...]:
    """The first two thirds and the last third of `keep` lines, and a line that counts what is left out."""
    if len(lines) <= keep:
        return lines
    head = max(1, keep * 2 // 3)
    tail = max(0, keep - head)
    left_out = len(lines) - head - tail
    return (*lines[:head], f"[… {left_out} lines left out …]", *lines[len(lines) - tail :])
