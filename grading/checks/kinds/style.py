"""Kinds of checks on how code is written: comments, descriptions, lengths of functions, names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import ClassVar, Literal

from pydantic import Field

from grading.checks.context import Context, Finding, counted
from grading.checks.definitions import KINDS, own_definitions, written_in
from grading.checks.kind import CheckKind
from grading.checks.scope import Piece, Scope, lines_of
from grading.domain.model import Location

Style = Literal["snake_case", "camelCase", "PascalCase", "UPPER_CASE", "dotted.case"]
CALLED = {"all": "definition", "functions": "function", "methods": "method", "classes": "class"}
MANY = {"class": "classes"}
_GENERIC = re.compile(
    r"\A(?:print|summary|plot|format|predict|update|mean|length|head|tail|sort|toString|as\.\w+|is|c)\.(?=.)"
)
"""An S3 method in R is named after its generic function: only the class is the student's word."""
_GIVEN = re.compile(r"__\w+__|main|toString|equals|hashCode|compareTo|setUp|tearDown|componentDidMount")
"""Names of functions that a language or its libraries prescribe."""
_TYPES = re.compile(
    r"^\s*(?:export\s+|public\s+|private\s+|static\s+)*(?:type|typedef|using|enum|interface)\b"
)
_IMPORT = re.compile(r"^\s*(?:import|from|#\s*include|using)\b")
_STYLES: dict[str, Callable[[str], bool]] = {
    "snake_case": lambda name: name == name.lower() and _of_words(name, "_"),
    "UPPER_CASE": lambda name: name == name.upper() and _of_words(name, "_"),
    "dotted.case": lambda name: name == name.lower() and _of_words(name, "."),
    "camelCase": lambda name: name.isalnum() and name[0] == name[0].lower(),
    "PascalCase": lambda name: name.isalnum() and name[0] == name[0].upper(),
}
_BEFORE = frozenset(".$@\"'`>")
_AFTER = frozenset("\"'`(")
Named = tuple[str, Style, Location]


class Comments(CheckKind):
    """The student's own comments and docstrings. Share = found / `at_least`, at most 1.

    Comment lines right below one another are one, as are the same words twice. Commented-out code is none.
    """

    kind: Literal["comments"] = "comments"
    at_least: int = Field(gt=0)
    words: int = Field(default=2, ge=1)
    """A comment of fewer words does not count."""

    at_once: ClassVar[bool] = True

    def evaluate(self, context: Context, scope: Scope) -> Finding:
        """Share of the asked number of comments; the same words twice are one."""
        found: dict[str, Location] = {}
        for piece in scope.added:
            for comment in piece.comments:
                if comment.words >= self.words:
                    found.setdefault(" ".join(comment.text.casefold().split()), piece.at(comment.first))
        said = f"{len(found)} of at least {counted(self.at_least, 'comment')}"
        place = next(iter(found.values()), None) or next((p.at() for p in scope.code), None)
        return Finding(min(1.0, len(found) / self.at_least), said, place)

    def default_label(self) -> str:
        """After what it asks for."""
        return f"at least {counted(self.at_least, 'comment')}"


class Documented(CheckKind):
    """The student's own functions, methods and classes have a description. Share = described / all.

    Docstrings, Javadoc, JSDoc and roxygen count; in C, R and SQL any comment directly above a definition.
    """

    kind: Literal["documented"] = "documented"
    of: Literal["all", "functions", "methods", "classes"] = "all"
    words: int = Field(default=1, ge=1)
    """A description of fewer words does not count."""

    at_once: ClassVar[bool] = True

    def evaluate(self, context: Context, scope: Scope) -> Finding:
        """Share of the student's definitions that have a description."""
        found = own_definitions(scope, KINDS[self.of])
        one = CALLED[self.of]
        if not found:
            return Finding(0.0, f"there is no {one} of your own here")
        bare = [(piece, each) for piece, each in found if each.documented < self.words]
        message = f"{len(found) - len(bare)} of {_counted(len(found), one)} with a description"
        if bare:
            message += f"; {bare[0][1].name} has none"
        piece, first = (bare or found)[0]
        return Finding(1 - len(bare) / len(found), message, piece.at(first.first))

    def default_label(self) -> str:
        """After what it asks for."""
        return "definitions have a description" if self.of == "all" else f"{self.of} have a description"


class FunctionLength(CheckKind):
    """Functions and methods that the student wrote in are not longer than this. Share = short ones / all."""

    kind: Literal["function_length"] = "function_length"
    at_most: int = Field(gt=0)
    """Lines of a function, from its head to its end."""

    at_once: ClassVar[bool] = True

    def evaluate(self, context: Context, scope: Scope) -> Finding:
        """Share of the functions the student wrote in that are short enough."""
        found = written_in(scope, KINDS["functions"] | KINDS["methods"])
        if not found:
            return Finding(0.0, "there is no function of your own here")
        long = sorted(
            (pair for pair in found if pair[1].lines > self.at_most), key=lambda pair: -pair[1].lines
        )
        short = len(found) - len(long)
        message = f"{short} of {counted(len(found), 'function')} with at most {counted(self.at_most, 'line')}"
        if long:
            message += f"; {long[0][1].name} has {long[0][1].lines}"
        piece, first = (long or found)[0]
        return Finding(short / len(found), message, piece.at(first.first))

    def default_label(self) -> str:
        """After what it asks for."""
        return f"functions of at most {counted(self.at_most, 'line')}"


class Naming(CheckKind):
    """Names that the student gave are written in a style. Share = names in it / all, each once.

    Names of one letter, constants in capitals, columns and names that the language prescribes do not count.
    """

    kind: Literal["naming"] = "naming"
    functions: Style | None = None
    variables: Style | None = None
    classes: Style | None = None

    usual_label: ClassVar[str] = "names are written as asked"
    at_once: ClassVar[bool] = True

    def evaluate(self, context: Context, scope: Scope) -> Finding:
        """Share of the student's names that are written in the style asked for."""
        found: dict[tuple[str, str], Named] = {}
        for kind, name, at in _names(scope):
            style: Style | None = getattr(self, kind)
            if style is not None and len(name) > 1:
                found.setdefault((kind, name), (name, style, at))
        if not found:
            return Finding(0.0, "there are no names of your own here")
        other = [
            (name, style, at)
            for (kind, _), (name, style, at) in found.items()
            if not _fits(kind, name, style)
        ]
        message = f"{len(found) - len(other)} of {counted(len(found), 'name')} written as asked"
        if other:
            message += f"; {other[0][0]} is not {other[0][1]}"
        place = (other or list(found.values()))[0][2]
        return Finding(1 - len(other) / len(found), message, place)


def _counted(number: int, one: str) -> str:
    return counted(number, one, MANY.get(one))


def _names(scope: Scope) -> Iterator[tuple[str, str, Location]]:
    """What the student named: whether a function, a class or a variable, the name, and where."""
    for kind in ("functions", "classes"):
        kinds = KINDS["functions"] | {"method"} if kind == "functions" else KINDS["classes"]
        for piece, one in own_definitions(scope, kinds):
            name = one.name.rpartition("$")[2]
            if piece.facts.language == "r":
                name = _GENERIC.sub("", name, count=1)
            if not _GIVEN.fullmatch(name):
                yield kind, name.strip("_."), piece.at(one.first)
    for piece in scope.code:
        yield from _variables(piece)


def _variables(piece: Piece) -> Iterator[tuple[str, str, Location]]:
    """Names that are assigned as they stand: no columns, attributes, types or imports."""
    others = {one.name.rpartition("$")[2] for one in piece.facts.definitions}
    lines = lines_of(piece.cell.source)
    mentions = (one for one in piece.facts.defines if one.full == one.name and one.name not in others)
    places = {(one.name, one.first) for one in mentions if one.first in piece.added}
    for name, number in sorted(places, key=lambda place: place[1]):
        line = lines[number - 1][:2000] if number <= len(lines) else ""
        if _stands(name, line) and not _TYPES.match(line) and not _IMPORT.match(line):
            yield "variables", name.strip("_."), piece.at(number)


def _stands(name: str, line: str) -> bool:
    """Whether a name is in a line as a word of its own: not quoted, no part of another, not called."""
    at = line.find(name)
    while at >= 0:
        before, after = line[at - 1 : at] if at else "", line[at + len(name) : at + len(name) + 1]
        if not (_joined(before) or before in _BEFORE or _joined(after) or after in _AFTER):
            return True
        at = line.find(name, at + 1)
    return False


def _joined(sign: str) -> bool:
    return sign == "_" or sign.isalnum()


def _fits(kind: str, name: str, style: Style) -> bool:
    constant = kind == "variables" and _STYLES["UPPER_CASE"](name)
    return constant or _STYLES[style](name)


def _of_words(name: str, sign: str) -> bool:
    return all(part.isalnum() for part in name.split(sign))
