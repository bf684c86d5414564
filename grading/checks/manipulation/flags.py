"""Signs that a submission tries to talk to the model that reviews it.

Looks at the sources the student added, at all outputs (a hidden one can be put into an untouched cell) and at
the names of files; also at what codes in them say. Everything found holds the grade for a person; nobody
loses points by it. Patterns ask for a whole phrase, not a word, so that `# ignore previous NA values` or a
column named `marks` say nothing. All gaps in patterns are bounded: the work is linear in the text.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from grading.checks.manipulation.about_grading import about_grading, speaks_of_students
from grading.checks.manipulation.answer_shapes import answer_shapes
from grading.checks.manipulation.decoding import decodings, plain
from grading.checks.manipulation.forged_phrases import LINES
from grading.checks.manipulation.hidden_characters import hidden_text
from grading.checks.manipulation.phrases import FLOWING
from grading.checks.manipulation.prefilter import WORTH
from grading.checks.manipulation.translated_phrases import ABROAD
from grading.domain.document import Cell, Document, Location
from grading.domain.evidence import Flag
from grading.domain.messages import Message, MessageType, define_message
from grading.domain.rubric import Rubric

CODE = "manipulation"
MAX_CHARS = 400_000
"""Of one cell, looked at."""
MOST_CHARS = 1_000_000
"""Of a whole submission, looked at: about ten seconds. What is longer waits for a person."""
TOO_LONG = define_message(
    "manipulation.too_long", "the text is too long to search all of it for instructions to the model"
)
IN_NAME = define_message("manipulation.in_name", "%(sign)s (in a file's name)")
IN_OUTPUT = define_message("manipulation.in_output", "%(sign)s (in an output)")
ABOUT_GRADING = define_message(
    "manipulation.about_grading", "text that speaks about the grading of this work"
)
QUOTED = define_message("manipulation.quoted", "%(sign)s: “%(words)s”")
QUOTED_DECODED = define_message("manipulation.decoded", "%(sign)s, encoded or disguised: “%(words)s”")
ENCODED = define_message(
    "manipulation.encoded",
    "long encoded text (%(length)s characters)",
)
MAX_FLAGS = 10
BLOB = re.compile(r"[A-Za-z0-9+/_-]{400,}={0,2}")
LONG_BLOB = 5_000
MARKERS = re.compile(r"^[\s#*>/|\-\"'`;%]+", re.MULTILINE)
WORD_SIGNS = re.compile(r"[_.+-]+")
"""What stands for a blank in names of files."""
NAME = re.compile(r"\b[A-Za-z]\w{17,120}\b")
"""Names long enough to hold a sentence."""
HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|_+")
MOST_NAMES = 500
ESCAPED = re.compile(r"\\[nt]")
"""In strings of code, where words begin after them."""
AROUND = 4
"""Lines before and after a line worth a look."""

_Patterns = tuple[tuple[MessageType, re.Pattern[str]], ...]


@dataclass(frozen=True)
class _Task:
    """What is known of the assignment."""

    rubric: Rubric | None
    of_students: bool


def manipulation_flags(documents: Sequence[Document], rubric: Rubric | None = None) -> tuple[Flag, ...]:
    """A flag that holds the grade for each sign found, at most ten.

    With the rubric, levels for its criteria are a sign, and so is talk of a student where the task is about
    none.
    """
    flags: list[Flag] = []
    task = _Task(rubric, rubric is None or _of_students(documents, rubric))
    left = MOST_CHARS
    for document in documents:
        for _, message in _in_text(WORD_SIGNS.sub(" ", document.path), task, code=False, name=True):
            place = Location(document=document.path)
            flags.append(Flag.of(CODE, IN_NAME(sign=message), hold=True, location=place))
        for cell in document.cells:
            left -= sum(len(text) for text in (cell.source, *(output.text for output in cell.outputs)))
            if left < 0:
                place = Location(document=document.path, cell=cell.number)
                flags.append(Flag.of(CODE, TOO_LONG(), hold=True, location=place))
                return tuple(flags[-MAX_FLAGS:])
            for line, message in _signs(cell, task):
                place = Location(
                    document=document.path,
                    cell=cell.number,
                    line=None if line is None else cell.first_line + line - 1,
                )
                flags.append(Flag.of(CODE, message, hold=True, location=place))
                if len(flags) >= MAX_FLAGS:
                    return tuple(flags[:MAX_FLAGS])
    return tuple(flags[:MAX_FLAGS])


def _of_students(documents: Sequence[Document], rubric: Rubric) -> bool:
    """Whether what the student was given, or the rubric, speaks of students."""
    said = [f"{one.title}. {one.description}" for one in rubric.criteria]
    for document in documents:
        for cell in document.cells:
            added = set(cell.added)
            said += [line for n, line in enumerate(cell.lines, start=1) if n not in added]
    return speaks_of_students("\n".join(said)[:MAX_CHARS])


def _signs(cell: Cell, task: _Task) -> Iterator[tuple[int | None, Message]]:
    lines = cell.lines
    numbers = [n for n in cell.added if 1 <= n <= len(lines)]
    own = "\n".join(lines[n - 1] for n in numbers)[:MAX_CHARS]
    for index, message in _in_text(own, task, code=cell.kind == "code"):
        yield numbers[min(index, len(numbers) - 1)], message
    shown = "\n".join(output.text for output in cell.outputs)[:MAX_CHARS]
    for _, message in _in_text(shown, task, code=False):
        yield None, IN_OUTPUT(sign=message)


def _in_text(text: str, task: _Task, *, code: bool, name: bool = False) -> Iterator[tuple[int, Message]]:
    """Index of the line (from 0) and the sentence for each sign, one of a kind."""
    if not text.strip():
        return
    hidden = hidden_text(text, code=code)
    if hidden is not None:
        yield hidden
    blob = _blob(text)
    if blob is not None:
        yield blob
    seen: set[MessageType] = set()
    shown = ESCAPED.sub("  ", plain(text))
    for index, message, words in _phrases(shown.split("\n")):
        if message not in seen:
            seen.add(message)
            yield index, QUOTED(sign=message, words=words)
    # a brace ends every phrase, so that what one code says is not read together with the next
    said = [(line, f"{part}{{") for line, text in _otherwise(shown) for part in text.split("\n")]
    for index, message, words in _phrases([part for _, part in said]):
        if message not in seen:
            seen.add(message)
            yield said[index][0], QUOTED_DECODED(sign=message, words=words)
    if not seen:
        yield from _about(shown, said, task, code=code, name=name)


def _about(
    shown: str, said: Sequence[tuple[int, str]], task: _Task, *, code: bool, name: bool
) -> Iterator[tuple[int, Message]]:
    """A ready-made answer, and the first sentence about the grading of the work, also in what codes say."""
    for index, message, words in answer_shapes(shown, task.rubric):
        yield index, QUOTED(sign=message, words=_excerpt(words))
    for index, words in about_grading(shown, code=code, of_students=task.of_students, name=name):
        yield index, QUOTED(sign=ABOUT_GRADING(), words=_excerpt(words))
        return
    for index, part in said:
        for _, words in about_grading(part.removesuffix("{"), code=False, of_students=task.of_students):
            yield index, QUOTED_DECODED(sign=ABOUT_GRADING(), words=_excerpt(words))
            return


def _phrases(lines: list[str]) -> Iterator[tuple[int, MessageType, str]]:
    """Index of the line, sentence and words of patterns that are found, at most one of each in a window."""
    for first, window in _windows(lines):
        for message, pattern in _line_patterns():
            hit = pattern.search(window)
            if hit:
                yield first + window.count("\n", 0, hit.start()), message, _excerpt(hit.group())
        # phrases may run over lines and comment signs; one blank for each keeps the lines countable
        flowing = MARKERS.sub(lambda hit: "\n" * hit.group().count("\n"), window)
        for message, pattern in _flowing_patterns():
            hit = pattern.search(flowing)
            if hit:
                yield first + flowing.count("\n", 0, hit.start()), message, _excerpt(hit.group())


@cache
def _line_patterns() -> _Patterns:
    """Compiled when first needed: most processes look at no work, and this is a twentieth of their start."""
    return tuple((message, re.compile(text, re.IGNORECASE | re.MULTILINE)) for message, text in LINES)


@cache
def _flowing_patterns() -> _Patterns:
    """The same of phrases in which a blank stands for any white space, also line ends."""
    return tuple(
        (message, re.compile(text.replace(" ", r"\s{1,20}"), re.IGNORECASE))
        for message, text in (*FLOWING, *ABROAD)
    )


def _windows(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Index of the first line and text of each part with a word that patterns need, and what is around it."""
    begin = end = 0
    for index, line in enumerate(lines):
        if not WORTH.search(line):
            continue
        if index - AROUND > end:
            if end:
                yield begin, "\n".join(lines[begin:end])
            begin = index - AROUND
        begin, end = max(0, begin), index + AROUND + 1
    if end:
        yield begin, "\n".join(lines[begin:end])


def _otherwise(text: str) -> Iterator[tuple[int, str]]:
    """What codes and long names in a text say, with the index of the line."""
    yield from decodings(text)
    for number, hit in enumerate(NAME.finditer(text)):
        if number >= MOST_NAMES:
            return
        words = HUMP.sub(" ", hit.group())
        if words.count(" ") >= 3:
            yield text.count("\n", 0, hit.start()), words.lower()


def _excerpt(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 80 else line[:77] + "…"


def _blob(text: str) -> tuple[int, Message] | None:
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
            return line, ENCODED(length=len(run))
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
