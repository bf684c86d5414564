"""Checks on how code is written: comments, descriptions, the length of functions, the style of names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from grading.checks.context import Context, Finding, counted
from grading.checks.definitions import KINDS, own_definitions, written_in
from grading.checks.scope import Piece, Scope, lines_of
from grading.domain.model import Location
from grading.domain.rubric import Comments, Documented, FunctionLength, Naming, Style

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


def comments(check: Comments, context: Context, scope: Scope) -> Finding:
    """Share of the asked number of comments; the same words twice are one."""
    found: dict[str, Location] = {}
    for piece in scope.added:
        for comment in piece.comments:
            if comment.words >= check.words:
                found.setdefault(" ".join(comment.text.casefold().split()), piece.at(comment.first))
    said = f"{len(found)} of at least {counted(check.at_least, 'comment')}"
    place = next(iter(found.values()), None) or next((p.at() for p in scope.code), None)
    return Finding(min(1.0, len(found) / check.at_least), said, place)


def documented(check: Documented, context: Context, scope: Scope) -> Finding:
    """Share of the student's definitions that have a description."""
    found = own_definitions(scope, KINDS[check.of])
    one = CALLED[check.of]
    if not found:
        return Finding(0.0, f"there is no {one} of your own here")
    bare = [(piece, each) for piece, each in found if each.documented < check.words]
    message = f"{len(found) - len(bare)} of {_counted(len(found), one)} with a description"
    if bare:
        message += f"; {bare[0][1].name} has none"
    piece, first = (bare or found)[0]
    return Finding(1 - len(bare) / len(found), message, piece.at(first.first))


def function_length(check: FunctionLength, context: Context, scope: Scope) -> Finding:
    """Share of the functions the student wrote in that are short enough."""
    found = written_in(scope, KINDS["functions"] | KINDS["methods"])
    if not found:
        return Finding(0.0, "there is no function of your own here")
    long = sorted((pair for pair in found if pair[1].lines > check.at_most), key=lambda pair: -pair[1].lines)
    short = len(found) - len(long)
    message = f"{short} of {counted(len(found), 'function')} with at most {counted(check.at_most, 'line')}"
    if long:
        message += f"; {long[0][1].name} has {long[0][1].lines}"
    piece, first = (long or found)[0]
    return Finding(short / len(found), message, piece.at(first.first))


def naming(check: Naming, context: Context, scope: Scope) -> Finding:
    """Share of the student's names that are written in the style asked for."""
    found: dict[tuple[str, str], Named] = {}
    for kind, name, at in _names(scope):
        style: Style | None = getattr(check, kind)
        if style is not None and len(name) > 1:
            found.setdefault((kind, name), (name, style, at))
    if not found:
        return Finding(0.0, "there are no names of your own here")
    other = [
        (name, style, at) for (kind, _), (name, style, at) in found.items() if not _fits(kind, name, style)
    ]
    message = f"{len(found) - len(other)} of {counted(len(found), 'name')} written as asked"
    if other:
        message += f"; {other[0][0]} is not {other[0][1]}"
    place = (other or list(found.values()))[0][2]
    return Finding(1 - len(other) / len(found), message, place)


def asked(check: Comments | Documented | FunctionLength | Naming) -> str:
    """What such a check without a label is called."""
    if isinstance(check, Comments):
        return f"at least {counted(check.at_least, 'comment')}"
    if isinstance(check, FunctionLength):
        return f"functions of at most {counted(check.at_most, 'line')}"
    if isinstance(check, Naming):
        return "names are written as asked"
    return "definitions have a description" if check.of == "all" else f"{check.of} have a description"


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
