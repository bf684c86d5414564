r"""Repairs paths to the data: `C:\Users\me\sales.csv` becomes the place the file has in an execution.

Only string literals change, and never the number of lines. A path is left as it is when it leads somewhere
in the execution, or when no file of that name lies there.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from grading.domain.base_value import Value
from grading.domain.document import Location
from grading.domain.messages import Message, define_message
from grading.execution.values import CodeLanguage
from grading.shared import python_syntax

MAX_SOURCE = 200_000
"""Characters of a cell that are looked at; of a longer one nothing is changed."""
MAX_LINE = 5_000
"""Python's own tokenizer takes the square of a line's length; code with longer lines is left as it is."""
MAX_PATH = 1_000
_HERE = frozenset(
    {"", ".", "./", "data", "./data", "data/", "./data/", "../data", "../data/", "/box", "/data"}
)
_R_TOKEN = re.compile(
    r"""\#[^\n]*+
      | `(?:[^`\\]++|\\.)*+(?:`|\Z)
      | [rR](?P<quote>["'])(?P<dash>-{0,20})(?P<open>[\[({])
      | "(?P<double>(?:[^"\\]++|\\.)*+)(?:"|\Z)
      | '(?P<single>(?:[^'\\]++|\\.)*+)(?:'|\Z)""",
    re.VERBOSE | re.DOTALL,
)
_R_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_CHDIR = {"python": re.compile(r"\bchdir\s*\(\s*$"), "r": re.compile(r"\bsetwd\s*\(\s*(?:dir\s*=\s*)?$")}
_FOLDER = re.compile(r"^(?:~|/|\\|[A-Za-z]:|\.\.?(?:[/\\]|$))|[/\\]")

OWN_FOLDER = define_message(
    "run.own_folder",
    "The folder “%(folder)s” does not exist in the sandbox; the submission ran in its own folder instead.",
)
OTHER_PATH = define_message(
    "run.other_path",
    "The path “%(was)s” was replaced by “%(now)s”, where the file is in the sandbox.",
)


class Repair(Value):
    """A path that was replaced before the work ran."""

    location: Location
    was: str
    now: str

    @property
    def message(self) -> Message:
        """A sentence for people."""
        return OWN_FOLDER(folder=self.was) if self.now == "." else OTHER_PATH(was=self.was, now=self.now)


@dataclass(frozen=True)
class _Literal:
    start: int
    end: int
    """Offsets of the literal with its quotes."""
    value: str


def repair(
    source: str, language: CodeLanguage, places: Mapping[str, str]
) -> tuple[str, tuple[tuple[int, str, str], ...]]:
    """The source with its paths repaired, and (line from 1, what was, what is) for each.

    `places` maps the base name of a file, in small letters, to its path in the execution (see `places_of`).
    """
    lower = source.lower()
    if len(source) > MAX_SOURCE or not any(name in lower for name in (*places, "setwd", "chdir")):
        return source, ()
    parts: list[str] = []
    found: list[tuple[int, str, str]] = []
    at = 0
    known = _reachable(places.values())
    for literal in _literals(source, language):
        now = _now(literal, source, language, places, known)
        if now is None or literal.start < at:
            continue
        parts += [source[at : literal.start], _quoted(now)]
        at = literal.end
        found.append((source.count("\n", 0, literal.start) + 1, literal.value, now))
    return "".join([*parts, source[at:]]), tuple(found)


def beside(submitted: Mapping[str, str], data: Mapping[str, str]) -> dict[str, str]:
    """What lies beside the work, path -> SHA-256: the assignment's data and the files of the submission.

    A folder `data` of the submission stays below `/box`, as `./data/…`: what it holds must never be taken for
    the assignment's, which lies beside the solution, the expected values and the tests, too.
    """
    own = {path: digest for path, digest in submitted.items() if path not in data}
    return {f"./{p}" if p.startswith("data/") else p: digest for p, digest in own.items()} | dict(data)


def places_of(files: Iterable[str]) -> dict[str, str]:
    """Base names in small letters and the paths they have, the assignment's data before other files.

    A name that two files of the same rank share is left out, since nobody knows which one is meant.
    """
    ranked: dict[str, list[str]] = {}
    for path in sorted(files, key=lambda p: (not p.startswith("data/"), p)):
        ranked.setdefault(path.rsplit("/", 1)[-1].lower(), []).append(path)
    found = {}
    for name, paths in ranked.items():
        data = [p for p in paths if p.startswith("data/")] or paths
        if len(data) == 1:
            found[name] = data[0]
    return found


def _now(
    literal: _Literal, source: str, language: CodeLanguage, places: Mapping[str, str], known: frozenset[str]
) -> str | None:
    """What a literal becomes, or nothing where it stays."""
    value = literal.value
    if not value or len(value) > MAX_PATH or "\n" in value or "://" in value:
        return None
    if _CHDIR[language].search(source, max(0, literal.start - 60), literal.start):
        return None if value in _HERE else "."
    name = re.split(r"[/\\]", value)[-1].strip().lower()
    place = places.get(name)
    if place is None or value.removeprefix("./") in known:
        return None
    return place if _FOLDER.search(value) or value.strip().lower() == name else None


def _reachable(paths: Iterable[str]) -> frozenset[str]:
    """All the ways to write where the files lie in an execution; data is at `x`, `data/x` and `../data/x`."""
    found: set[str] = set()
    for path in paths:
        plain = path.removeprefix("./")
        found |= {plain, f"/box/{plain}"}
        if path.startswith("data/"):
            bare = path.removeprefix("data/")
            found |= {bare, f"/box/{bare}", f"../{path}", f"/{path}"}
    return frozenset(found)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _literals(source: str, language: CodeLanguage) -> Iterator[_Literal]:
    return _python(source) if language == "python" else _r(source)


def _python(source: str) -> Iterator[_Literal]:
    """Plain string literals; those inside an f-string, and bytes, are left out."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    lines = source.splitlines(keepends=True)
    if max(map(len, lines), default=0) > MAX_LINE:
        return
    # what other kinds of line breaks there are, tokenize does not count
    if any(line[-1:] not in ("\n", "") and line.rstrip("\r\n") != line for line in lines[:-1]):
        return
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type != tokenize.STRING:
                continue
            value = _value(token.string)
            if value is not None:
                (row, column), (last, end) = token.start, token.end
                yield _Literal(starts[row - 1] + column, starts[last - 1] + end, value)
    except (tokenize.TokenError, SyntaxError, IndexError):
        return  # the rest is no Python, and will say so itself when it runs


def _value(literal: str) -> str | None:
    prefix = literal[: len(literal) - len(literal.lstrip("rRbBuUfF"))].lower()
    if "b" in prefix or "f" in prefix or "\n" in literal or len(literal) > MAX_PATH:
        return None
    try:
        value = python_syntax.literal(literal)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        # "C:\Users\…" is no Python, but it is clear what was meant
        return literal.strip("\"'").replace("\\\\", "\\") if not prefix and "\\" in literal else None
    return value if isinstance(value, str) else None


def _r(source: str) -> Iterator[_Literal]:
    at = 0
    while (hit := _R_TOKEN.search(source, at)) is not None:
        at = hit.end()
        if hit["quote"]:
            # raw strings: r"(...)", r"---[...]---"
            close = {"(": ")", "[": "]", "{": "}"}[hit["open"]] + hit["dash"] + hit["quote"]
            end = source.find(close, at)
            if end < 0:
                return
            yield _Literal(hit.start(), end + len(close), source[at:end])
            at = end + len(close)
        elif (text := hit["double"] if hit["double"] is not None else hit["single"]) is not None:
            yield _Literal(hit.start(), hit.end(), _R_ESCAPE.sub(_unescaped, text[: MAX_PATH + 1]))


def _unescaped(hit: re.Match[str]) -> str:
    # \U and \x would be read as escapes, but in a path they are what was meant
    return hit[1] if hit[1] in "\\\"'/" else hit[0]
