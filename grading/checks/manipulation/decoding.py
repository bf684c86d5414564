"""What a text says to somebody who decodes it: the same words in other letters, orders or codes.

Each way back is tried only where a cheap sign shows that it may be one. All work is linear in the text.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import html
import re
import unicodedata
import urllib.parse
from collections.abc import Iterator

# ruff: noqa: E501 - a pattern is read better whole


MOST = 40
"""Codes of each kind that are tried."""
LONGEST = 4_000
"""Characters of a code that are decoded."""
_INVISIBLE = re.compile(
    "[\u00ad\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufe00-\ufe0f\ufeff\U000e0000-\U000e01ef]"
)
_LOOKALIKES = str.maketrans(
    "ІЅЈТНВМКаеорсухіѕјԁԛԝһոъΑΒΕΗΙΚΜΝΟΡΤΧΥΖονικρτυωАЕОРСТХ",
    "ISJTHBMKaeopcyxisjdqwhnbABEHIKMNOPTXYZovikptuwAEOPCTX",
)
_ASCII_WORD = re.compile(r"[A-Za-z]")
_BASE64 = re.compile(r"(?<![\w+/-])[A-Za-z0-9+/_-]{16,4000}={0,2}")
_BASE32 = re.compile(r"(?<!\w)[A-Z2-7]{24,2000}={0,6}(?!\w)")
_HEX = re.compile(r"(?<![0-9a-f])(?:0x)?((?:[0-9a-f]{2}[ :]?){10,2000})(?![0-9a-f])", re.IGNORECASE)
_ESCAPES = re.compile(r"(?:\\x[0-9a-f]{2}|\\u[0-9a-f]{4}){6,2000}", re.IGNORECASE)
_PERCENT = re.compile(r"(?:%[0-9a-f]{2}|[\w.~-]){10,4000}", re.IGNORECASE)
_ENTITIES = re.compile(r"(?:&#x?[0-9a-f]{2,6};\s?){6,2000}", re.IGNORECASE)
_CODES = re.compile(r"\b\d{2,3}(?:\s?[,;]\s?|\s)(?:\d{2,3}(?:\s?[,;]\s?|\s)){6,2000}\d{2,3}\b")
_BITS = re.compile(r"\b[01]{8}(?:\s?[01]{8}){5,2000}\b")
_MORSE = re.compile(r"[.-]{1,5}(?:[ /|]{1,3}[.-]{1,5}){11,2000}")
_SPACED = re.compile(r"(?<!\w)\w(?:[ ._*|-]{1,3}\w(?!\w)){7,400}")
_ROT13 = re.compile(
    r"\b(?:znexf?|cbvagf?|tenqre?|yriryf?|vtaber|pevgrevn|pevgrevba|ehoevp|njneq|fpber)\b", re.IGNORECASE
)
_TURNED = re.compile(
    r"(?:skram|stniop|edarg|redarg|level|erongi|airetirc|noiretirc|cirbur|drawa|erocs|tnedutsruoy)",
    re.IGNORECASE,
)
_LEET = re.compile(
    r"\b(?=[a-z]{0,9}[013457@$][\w@$]{0,12}\b)(?=[\w@$]{0,12}[a-z])[\w@$]{3,14}\b", re.IGNORECASE
)
_LEET_WORD = re.compile(r"\b[\w@$]{2,14}")
_LEET_LETTERS = str.maketrans("013457@$", "oieastas")
_MORSE_LETTERS = dict(
    zip(
        ".- -... -.-. -.. . ..-. --. .... .. .--- -.- .-.. -- -. --- .--. --.- .-. ... - ..- ...- .-- -..- -.-- --..".split(),
        "abcdefghijklmnopqrstuvwxyz",
        strict=True,
    )
)


def plain(text: str) -> str:
    """The text as a model would read it: no invisible characters or strokes, lookalikes as Latin letters."""
    if text.isascii():
        return text
    text = unicodedata.normalize("NFKC", _INVISIBLE.sub("", text))
    text = re.sub("(?<=[A-Za-z ])[\u0334-\u0338\u0332\u0333\u0305]", "", text)
    return re.sub(r"\w+", _latin, text)


def _latin(hit: re.Match[str]) -> str:
    """A word that mixes Latin letters with lookalikes, or has only lookalikes, in Latin letters."""
    word = hit.group()
    if word.isascii():
        return word
    turned = word.translate(_LOOKALIKES)
    return turned if turned.isascii() or (_ASCII_WORD.search(word) and not word.isascii()) else word


def decodings(text: str) -> Iterator[tuple[int, str]]:
    """Index of the line (from 0) at which a code begins, and what it says."""
    for at, said in _codes(text):
        if said and len(said) >= 6:
            yield text.count("\n", 0, at), said
    if _ROT13.search(text):
        yield 0, codecs.encode(text, "rot13")
    if _TURNED.search(text):
        yield 0, "\n".join(line[::-1] for line in text.split("\n"))
        yield 0, "\n".join(" ".join(word[::-1] for word in line.split(" ")) for line in text.split("\n"))
    if len(_LEET.findall(text[:20_000])) >= 3:
        yield 0, _LEET_WORD.sub(lambda hit: hit.group().translate(_LEET_LETTERS), text)
    for hit in _few(_SPACED, text):
        yield text.count("\n", 0, hit.start()), _joined(hit.group())


def _few(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    for number, hit in enumerate(pattern.finditer(text)):
        if number >= MOST:
            return
        yield hit


def _codes(text: str) -> Iterator[tuple[int, str]]:
    for hit in _few(_BASE64, text):
        yield hit.start(), _base(hit.group())
    for hit in _few(_BASE32, text):
        code = hit.group().rstrip("=")
        yield hit.start(), _readable(_bytes(lambda c=code: base64.b32decode(c + "=" * (-len(c) % 8))))
    for hit in _few(_HEX, text):
        digits = re.sub(r"[ :]", "", hit.group(1))
        yield hit.start(), _readable(_bytes(lambda d=digits: bytes.fromhex(d[: len(d) // 2 * 2])))
    for hit in _few(_ESCAPES, text):
        yield (
            hit.start(),
            "".join(chr(int(code, 16)) for code in re.findall(r"\\[xu]([0-9a-fA-F]+)", hit.group())),
        )
    for hit in _few(_PERCENT, text):
        if "%" in hit.group():
            yield hit.start(), urllib.parse.unquote(hit.group())
    for hit in _few(_ENTITIES, text):
        yield hit.start(), html.unescape(hit.group())
    for hit in _few(_CODES, text):
        numbers = [int(n) for n in re.findall(r"\d+", hit.group())]
        yield hit.start(), _readable(bytes(n for n in numbers if n < 256) if max(numbers) < 256 else b"")
    for hit in _few(_BITS, text):
        bits = re.sub(r"\s", "", hit.group())
        yield hit.start(), _readable(bytes(int(bits[n : n + 8], 2) for n in range(0, len(bits) - 7, 8)))
    for hit in _few(_MORSE, text):
        yield hit.start(), _morse(hit.group())


def _bytes(decode: object) -> bytes:
    try:
        return bytes(decode())  # type: ignore[operator]
    except (binascii.Error, ValueError):
        return b""


def _base(code: str) -> str:
    code = code.rstrip("=")[:LONGEST].replace("-", "+").replace("_", "/")
    return _readable(_bytes(lambda: base64.b64decode(code + "=" * (-len(code) % 4), validate=True)))


def _readable(data: bytes) -> str:
    """The text in bytes, or nothing where they are none."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return ""
    shown = sum(c.isprintable() or c in "\n\t" for c in text)
    return text if text and shown >= 0.95 * len(text) else ""


def _morse(code: str) -> str:
    words = re.split(r"\s{0,2}[/|]\s{0,2}|\s{3,}", code)
    return " ".join("".join(_MORSE_LETTERS.get(c, "") for c in word.split()) for word in words)


def _joined(spaced: str) -> str:
    """Letters set apart by a sign, put together; more blanks than between letters part words."""
    sign = next((c for c in "._*|-" if spaced.count(c) >= len(spaced) // 3), "")
    if sign:
        return spaced.replace(sign, "")
    return re.sub(r" {2,}", " ", re.sub(r"(?<=\w) (?=\w)", "", spaced))
