"""Signs that a hand-in tries to talk to the model that reviews it.

Looks at the sources the student added, at all outputs (a hidden one can be put into an untouched cell) and at
the names of files. Everything found holds the grade for a person; nobody loses points by it. Patterns ask for
a whole phrase, not a word, so that `# ignore previous NA values` or a column named `marks` say nothing. All
gaps in patterns are bounded: the work is linear in the text.
"""

from __future__ import annotations

import base64
import binascii
import re
import unicodedata
from collections.abc import Iterator, Sequence

from grading.evidence.hidden import hidden_text
from grading.evidence.phrases import FLOWING, LINES
from grading.model import Cell, Document, Flag, Location

CODE = "manipulation"
MAX_CHARS = 400_000
"""Of one cell, looked at."""
MAX_FLAGS = 10
BLOB = re.compile(r"[A-Za-z0-9+/_-]{400,}={0,2}")
LONG_BLOB = 5_000
MARKERS = re.compile(r"^[\s#*>/|\-\"'`;%]+", re.MULTILINE)
LOOKALIKES = str.maketrans("ІЅЈаеорсухіѕјԁոΑΒΕΗΙΚΜΝΟΡΤΧΥΖаЕОРСТХ", "ISJaeopcyxisjdnABEHIKMNOPTXYZaEOPCTX")
WORD_SIGNS = re.compile(r"[_.+-]+")
"""What stands for a blank in names of files."""
INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]")


def manipulation_flags(documents: Sequence[Document]) -> tuple[Flag, ...]:
    """A flag that holds the grade for each sign found, at most ten."""
    flags: list[Flag] = []
    for document in documents:
        for _, message in _in_text(WORD_SIGNS.sub(" ", document.path), code=False):
            place = Location(document=document.path)
            flags.append(Flag(code=CODE, message=f"{message} (in a file's name)", hold=True, location=place))
        for cell in document.cells:
            for line, message in _signs(cell):
                place = Location(
                    document=document.path,
                    cell=cell.number,
                    line=None if line is None else cell.first_line + line - 1,
                )
                flags.append(Flag(code=CODE, message=message, hold=True, location=place))
                if len(flags) >= MAX_FLAGS:
                    return tuple(flags[:MAX_FLAGS])
    return tuple(flags[:MAX_FLAGS])


def _signs(cell: Cell) -> Iterator[tuple[int | None, str]]:
    lines = cell.lines
    numbers = [n for n in cell.added if 1 <= n <= len(lines)]
    own = "\n".join(lines[n - 1] for n in numbers)[:MAX_CHARS]
    for index, message in _in_text(own, code=cell.kind == "code"):
        yield numbers[min(index, len(numbers) - 1)], message
    shown = "\n".join(output.text for output in cell.outputs)[:MAX_CHARS]
    for _, message in _in_text(shown, code=False):
        yield None, f"{message} (in an output)"


def _in_text(text: str, *, code: bool) -> Iterator[tuple[int, str]]:
    """Index of the line (from 0) and the sentence for each sign, one of a kind."""
    if not text.strip():
        return
    hidden = hidden_text(text, code=code)
    if hidden is not None:
        yield hidden
    blob = _blob(text)
    if blob is not None:
        yield blob
    plain = _plain(text)
    seen: set[str] = set()
    for message, pattern in LINES:
        hit = pattern.search(plain)
        if hit and message not in seen:
            seen.add(message)
            yield plain.count("\n", 0, hit.start()), f"{message}: “{_excerpt(hit.group())}”"
    # phrases may run over lines and comment signs; one blank for each keeps the lines countable
    flowing = MARKERS.sub(lambda hit: "\n" * hit.group().count("\n"), plain)
    for message, pattern in FLOWING:
        hit = pattern.search(flowing)
        if hit and message not in seen:
            seen.add(message)
            yield flowing.count("\n", 0, hit.start()), f"{message}: “{_excerpt(hit.group())}”"


def _plain(text: str) -> str:
    """The text as a model would read it: no invisible characters, lookalikes as Latin letters."""
    if text.isascii():
        return text
    text = unicodedata.normalize("NFKC", INVISIBLE.sub("", text))
    return text.translate(LOOKALIKES)


def _excerpt(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 80 else line[:77] + "…"


def _blob(text: str) -> tuple[int, str] | None:
    """A long run of encoded characters that decodes to text, or a very long one. Pictures are left out."""
    for hit in BLOB.finditer(text):
        run = hit.group()
        if re.search(
            r"data:(?:image|font|audio|video)/[\w+.-]{1,40};base64,$",
            text[max(0, hit.start() - 80) : hit.start()],
        ):
            continue
        if not (re.search(r"[a-z]", run) and re.search(r"[A-Z]", run) and re.search(r"\d", run)):
            continue
        if len(run) >= LONG_BLOB or _decodes_to_words(run):
            line = text.count("\n", 0, hit.start())
            return line, f"a long run of encoded characters ({len(run)}) that a reader cannot check"
    return None


def _decodes_to_words(run: str) -> bool:
    run = run.rstrip("=")[:2000]
    run = run[: len(run) // 4 * 4].replace("-", "+").replace("_", "/")
    try:
        data = base64.b64decode(run, validate=True)
    except (binascii.Error, ValueError):
        return False
    readable = sum(byte in b"\n\t" or 32 <= byte < 127 for byte in data)
    return readable >= 0.95 * max(1, len(data))
