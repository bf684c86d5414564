"""Bytes to text, and what to know about characters."""

from __future__ import annotations

import codecs
import re
import unicodedata

from charset_normalizer import from_bytes

from grading.documents.files import shown
from grading.domain.errors import DocumentError
from grading.domain.messages import define_message

NOT_TEXT = define_message("text.not_text", "%(name)s is not text; save it as UTF-8 text and upload it again.")
OTHER_CONTENT = define_message(
    "text.other_content", "%(name)s is %(what)s, not text; save your work as a text file."
)
PDF = define_message("text.kind.pdf", "a PDF")
PICTURE = define_message("text.kind.picture", "an image")
ZIP_OR_OFFICE = define_message("text.kind.zip_or_office", "a ZIP or Office file")
OFFICE = define_message("text.kind.office", "an Office file")
RICH_TEXT = define_message("text.kind.rich_text", "a rich-text file")
PROGRAM = define_message("text.kind.program", "a program")
COMPILED_CLASS = define_message("text.kind.compiled_class", "a compiled class")
COMPRESSED = define_message("text.kind.compressed", "a compressed file")
SEVEN_ZIP = define_message("text.kind.seven_zip", "a 7-Zip archive")
RAR = define_message("text.kind.rar", "a RAR archive")
DATABASE = define_message("text.kind.database", "a database")

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_MAGIC = (
    (b"%PDF-", PDF),
    (b"\x89PNG", PICTURE),
    (b"GIF8", PICTURE),
    (b"\xff\xd8\xff", PICTURE),
    (b"PK\x03\x04", ZIP_OR_OFFICE),
    (b"\xd0\xcf\x11\xe0", OFFICE),
    (b"{\\rtf", RICH_TEXT),
    (b"\x7fELF", PROGRAM),
    (b"MZ\x90", PROGRAM),
    (b"\xca\xfe\xba\xbe", COMPILED_CLASS),
    (b"\x1f\x8b", COMPRESSED),
    (b"7z\xbc\xaf", SEVEN_ZIP),
    (b"Rar!", RAR),
    (b"SQLite format 3", DATABASE),
)
_SAMPLE = 64 * 1024
_WESTERN = frozenset("äöüÄÖÜßéèêëàâáãåçñíìîïóòôõøúùûýÿæœÉÈÀÂÇÑÅÆØÓÍÁÚ€’‘“”„–—…°§£«»¿¡·²³µ×")
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_BLANKS = {"\u115f", "\u1160", "\u3164", "\uffa0", "\u2800"}


def decode(name: str, data: bytes) -> tuple[str, str | None]:
    r"""The text of a file with `\n` line ends, and a note when something had to be repaired.

    Reads UTF-8, UTF-16, UTF-32 and, by their look, other encodings. Raises DocumentError for binary content.
    """
    for magic, what in _MAGIC:
        if data.startswith(magic):
            raise DocumentError(OTHER_CONTENT(name=shown(name), what=what))
    text, encoding = _decode(data)
    if text is None or _looks_binary(text):
        raise DocumentError(NOT_TEXT(name=shown(name)))
    notes = []
    if encoding is not None:
        notes.append(f"{shown(name)} is not saved as UTF-8; it was read as {encoding}.")
    if "\0" in text:
        notes.append(f"NUL characters were left out of {shown(name)}.")
    return clean(text), " ".join(notes) or None


def clean(text: str) -> str:
    r"""Text with `\n` line ends, without NUL and lone surrogates; anything else stays as it is."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")
    if not text.isascii():
        text = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    return text


def strip_ansi(text: str) -> str:
    """Text without terminal colours; of lines that were written over (progress bars) the last state."""
    text = _ANSI.sub("", text).replace("\r\n", "\n")
    if "\r" in text:
        text = "\n".join(line.rstrip("\r").rsplit("\r", 1)[-1] for line in text.split("\n"))
    return clean(text)


def hidden_characters(text: str) -> list[tuple[int, str]]:
    """Characters no reader sees (zero-width, direction marks, tags, controls), as (line, name) once each."""
    found: dict[tuple[int, str], None] = {}
    if text.isascii() and text.isprintable():
        return []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.isascii() and line.isprintable():
            continue
        before = ""
        for char in line:
            if _hidden(char, before):
                found[number, unicodedata.name(char, f"CONTROL U+{ord(char):04X}")] = None
            before = char
    return list(found)


def _hidden(char: str, before: str) -> bool:
    if char.isascii():
        return char != "\t" and not char.isprintable()
    category = unicodedata.category(char)
    if char == "\u200d":  # joins emoji; elsewhere it hides
        return not (before and (unicodedata.category(before) in ("So", "Sk") or before == "\ufe0f"))
    return category in ("Cf", "Cc") or char in _BLANKS or "\U000e0100" <= char <= "\U000e01ef"


def _decode(data: bytes) -> tuple[str | None, str | None]:
    """Text (none when there is no way to read it) and the encoding's name when it is not UTF-8."""
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            text = _try(data[len(bom) :], encoding)
            if text is not None:
                return text, None if encoding == "utf-8" else encoding[:6].upper()
    wide = _wide(data)
    if wide is not None and (text := _try(data, wide)) is not None:
        return text, "UTF-16"
    if (text := _try(data, "utf-8")) is not None:
        return text, None
    guessed = _guess(data)
    return (None, None) if guessed is None else (data.decode(guessed, "replace"), guessed)


def _try(data: bytes, encoding: str) -> str | None:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        return None


def _wide(data: bytes) -> str | None:
    """UTF-16 without a mark shows as a NUL in every second byte of Western text."""
    sample = data[: _SAMPLE & ~1]
    if len(sample) < 4 or len(data) % 2:
        return None
    half = len(sample) // 2
    even, odd = sample[0::2].count(0) / half, sample[1::2].count(0) / half
    if odd > 0.4 and even < 0.05:
        return "utf-16-le"
    return "utf-16-be" if even > 0.4 and odd < 0.05 else None


def _guess(data: bytes) -> str | None:
    """A legacy encoding. Lone accented letters between ASCII are Western, which guessers often miss."""
    if data.count(0) * 100 > len(data):
        return None
    sample = data if len(data) <= _SAMPLE else _telling(data)
    if _looks_binary(sample.decode("latin-1")):
        return None
    runs = re.findall(rb"[\x80-\xff]+", sample)
    high = b"".join(runs)
    usual = sum(char in _WESTERN for char in high.decode("cp1252", "replace"))
    if (
        len(high) <= 1.8 * len(runs)
        and usual >= 0.7 * len(high)
        and not _CONTROLS.search(sample.decode("latin-1"))
    ):
        return "cp1252" if _try(data, "cp1252") is not None else "latin-1"
    best = from_bytes(sample).best()
    return best.encoding if best is not None else None


def _telling(data: bytes) -> bytes:
    """The lines that hold other than ASCII, up to the sample's size."""
    lines = [line for line in data.splitlines(keepends=True) if not line.isascii()]
    return b"".join(lines)[:_SAMPLE]


def _looks_binary(text: str) -> bool:
    sample = text[:_SAMPLE]
    return len(_CONTROLS.findall(sample)) * 50 > len(sample)
