"""Half-written answers as text for students: never more than what is meant for them anyway."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from grading.domain.stages import STAGES
from workers.machine.sanitize import clip, visible

MOST_CHARS = 4_000
_LONGEST = 200_000
_DEEPEST = 20
_INNER: Mapping[str, tuple[str, ...]] = MappingProxyType({"suggestions": ("what", "why", "how", "example")})
_BEGINNING = re.compile(r'\{(?=\s*")')
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)("?)', re.DOTALL)
_LITERAL = re.compile(r"[^\s\"{}\[\],:]+")
_HALF_ESCAPE = re.compile(r"(?<!\\)((?:\\\\)*)\\u[0-9a-fA-F]{0,3}$")
_SPACE = re.compile(r"\s*")
Path = tuple[str | int, ...]


def readable(stage_name: str, text: str) -> str:
    """The texts for the student in a JSON answer or any beginning of one, as paragraphs.

    At most 4,000 characters; empty where there are none yet, and for anything that is no answer of the stage.
    """
    row = STAGES.get(stage_name)
    body = text[:_LONGEST]
    body = body.rpartition("</think>")[2] if "</think>" in body else body.partition("<think>")[0]
    begun = _BEGINNING.search(body)
    if row is None or begun is None:
        return ""
    paragraphs = [
        f"- {said}" if len(path) > 1 else said
        for path, value in _Reader(body, begun.start()).strings()
        if _for_student(path, row.written) and (said := visible(value).strip())
    ]
    return clip("\n".join(paragraphs), MOST_CHARS)


def _for_student(path: Path, shown: tuple[str, ...]) -> bool:
    """Whether a string stands where a text for the student does: at the top, or in a list there."""
    if not path or path[0] not in shown:
        return False
    inner = _INNER.get(str(path[0]))
    if inner is not None:
        return len(path) == 3 and path[2] in inner
    return len(path) == 1 or (len(path) == 2 and isinstance(path[1], int))


class _End(Exception):
    """The text ended, or is no JSON from here on."""


class _Reader:
    """Reads as much of a JSON value as there is."""

    def __init__(self, text: str, at: int) -> None:
        self._text = text
        self._at = at

    def strings(self) -> Iterator[tuple[Path, str]]:
        """Each string value with the keys and numbers that lead to it; the last one may be half a string."""
        try:
            yield from self._value(())
        except _End:
            return

    def _value(self, path: Path) -> Iterator[tuple[Path, str]]:
        if len(path) > _DEEPEST:
            raise _End
        match self._next():
            case "{":
                yield from self._object(path)
            case "[":
                yield from self._array(path)
            case '"':
                said, whole = self._string()
                yield path, said
                if not whole:
                    raise _End
            case _:
                found = _LITERAL.match(self._text, self._at)
                if found is None:
                    raise _End
                self._at = found.end()

    def _object(self, path: Path) -> Iterator[tuple[Path, str]]:
        self._at += 1
        while self._next() != "}":
            if self._next() != '"':
                raise _End
            key, whole = self._string()
            if not whole:
                raise _End
            self._take(":")
            yield from self._value((*path, key))
            if self._next() != "}":
                self._take(",")
        self._at += 1

    def _array(self, path: Path) -> Iterator[tuple[Path, str]]:
        self._at += 1
        number = 0
        while self._next() != "]":
            yield from self._value((*path, number))
            number += 1
            if self._next() != "]":
                self._take(",")
        self._at += 1

    def _string(self) -> tuple[str, bool]:
        """The string that begins here, and whether it is complete."""
        found = _STRING.match(self._text, self._at)
        if found is None:
            raise _End
        self._at = found.end()
        raw, whole = found[1], bool(found[2])
        if not whole:
            raw = _HALF_ESCAPE.sub(r"\1", raw)
        try:
            return str(json.loads(f'"{raw}"', strict=False)), whole
        except ValueError:
            raise _End from None

    def _next(self) -> str:
        """The next character that is no blank, which stays; _End at the end."""
        found = _SPACE.match(self._text, self._at)
        self._at = found.end() if found else self._at
        if self._at >= len(self._text):
            raise _End
        return self._text[self._at]

    def _take(self, expected: str) -> None:
        if self._next() != expected:
            raise _End
        self._at += 1
