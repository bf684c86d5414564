"""Kinds of checks on how code is written: comments, descriptions, lengths of functions, names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar, Literal

from pydantic import Field

from grading.checks import field_labels
from grading.checks.context import Context, Finding
from grading.checks.kind import CheckKind
from grading.checks.message_parts import AT_LEAST, CLASSES, FUNCTIONS, LINES, METHODS
from grading.checks.scope import Piece, Scope, lines_of
from grading.checks.student_definitions import KINDS, own_definitions, written_in
from grading.domain.document import Location
from grading.domain.messages import Message, MessageType, define_message, define_plural

Style = Literal["snake_case", "camelCase", "PascalCase", "UPPER_CASE", "dotted.case"]
COMMENTS = define_plural("count.comments", "%(count)s comment", "%(count)s comments")
NAMES = define_plural("count.names", "%(count)s name", "%(count)s names")
DEFINED = {
    "all": define_plural("count.definitions", "%(count)s definition", "%(count)s definitions"),
    "functions": FUNCTIONS,
    "methods": METHODS,
    "classes": CLASSES,
}
NO_DEFINITION = {
    "all": define_message("check.no_definition", "there is no definition of your own here"),
    "functions": define_message("check.no_function", "there is no function of your own here"),
    "methods": define_message("check.no_method", "there is no method of your own here"),
    "classes": define_message("check.no_class", "there is no class of your own here"),
}
DOCUMENTED = {
    "all": define_message("check.documented.label", "definitions have a description"),
    "functions": define_message("check.documented.functions", "functions have a description"),
    "methods": define_message("check.documented.methods", "methods have a description"),
    "classes": define_message("check.documented.classes", "classes have a description"),
}
COMMENTS_FOUND = define_plural(
    "check.comments.found",
    "%(found)s of at least %(count)s comment",
    "%(found)s of at least %(count)s comments",
)
DESCRIBED = define_message("check.documented.found", "%(described)s of %(all)s with a description")
BARE = define_message(
    "check.documented.bare", "%(described)s of %(all)s with a description; %(name)s has none"
)
FUNCTIONS_OF = define_message("check.function_length.label", "functions of at most %(at_most)s")
SHORT = define_message("check.function_length.short", "%(short)s of %(all)s with at most %(at_most)s")
TOO_LONG = define_message(
    "check.function_length.too_long",
    "%(short)s of %(all)s with at most %(at_most)s; %(name)s has %(lines)s",
)
NO_NAMES = define_message("check.naming.none", "there are no names of your own here")
IN_STYLE = define_message("check.naming.found", "%(right)s of %(all)s written as asked")
OTHER_STYLE = define_message(
    "check.naming.other", "%(right)s of %(all)s written as asked; %(name)s is not %(style)s"
)
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

    title: ClassVar[MessageType] = define_message("check.comments.title", "Comments")
    about: ClassVar[MessageType] = define_message(
        "check.comments.about", "Counts the comments and docstrings that the student wrote."
    )
    field_titles: ClassVar[Mapping[str, MessageType]] = {
        "at_least": field_labels.AT_LEAST,
        "words": field_labels.WORDS,
    }
    at_once: ClassVar[bool] = True

    def evaluate(self, context: Context, scope: Scope) -> Finding:
        """Share of the asked number of comments; the same words twice are one."""
        found: dict[str, Location] = {}
        for piece in scope.added:
            for comment in piece.comments:
                if comment.words >= self.words:
                    found.setdefault(" ".join(comment.text.casefold().split()), piece.at(comment.first))
        message = COMMENTS_FOUND(found=len(found), count=self.at_least)
        place = next(iter(found.values()), None) or next((p.at() for p in scope.code), None)
        return Finding(min(1.0, len(found) / self.at_least), message, place)

    def default_label(self) -> Message:
        """After what it asks for."""
        return AT_LEAST(number=COMMENTS(count=self.at_least))


class Documented(CheckKind):
    """The student's own functions, methods and classes have a description. Share = described / all.

    Docstrings, Javadoc, JSDoc and roxygen count; in C, R and SQL any comment directly above a definition.
    """

    kind: Literal["documented"] = "documented"
    of: Literal["all", "functions", "methods", "classes"] = "all"
    words: int = Field(default=1, ge=1)
    """A description of fewer words does not count."""

    title: ClassVar[MessageType] = define_message(
        "check.documented.title", "Documentation of functions and classes"
    )
    about: ClassVar[MessageType] = define_message(
        "check.documented.about",
        "Functions, methods and classes that the student wrote have a docstring or a comment.",
    )
    field_titles: ClassVar[Mapping[str, MessageType]] = {
        "of": field_labels.OF,
        "words": field_labels.WORDS,
    }
    at_once: ClassVar[bool] = True

    def evaluate(self, context: Context, scope: Scope) -> Finding:
        """Share of the student's definitions that have a description."""
        found = own_definitions(scope, KINDS[self.of])
        if not found:
            return Finding(0.0, NO_DEFINITION[self.of]())
        bare = [(piece, each) for piece, each in found if each.documented < self.words]
        values = {"described": len(found) - len(bare), "all": DEFINED[self.of](count=len(found))}
        message = BARE(**values, name=bare[0][1].name) if bare else DESCRIBED(**values)
        piece, first = (bare or found)[0]
        return Finding(1 - len(bare) / len(found), message, piece.at(first.first))

    def default_label(self) -> Message:
        """After what it asks for."""
        return DOCUMENTED[self.of]()


class FunctionLength(CheckKind):
    """Functions and methods that the student wrote in are not longer than this. Share = short ones / all."""

    kind: Literal["function_length"] = "function_length"
    at_most: int = Field(gt=0)
    """Lines of a function, from its head to its end."""

    title: ClassVar[MessageType] = define_message("check.function_length.title", "Function length")
    about: ClassVar[MessageType] = define_message(
        "check.function_length.about",
        "Functions and methods that the student wrote or changed have at most this many lines.",
    )
    field_titles: ClassVar[Mapping[str, MessageType]] = {
        "at_most": field_labels.AT_MOST,
    }
    at_once: ClassVar[bool] = True

    def evaluate(self, context: Context, scope: Scope) -> Finding:
        """Share of the functions the student wrote in that are short enough."""
        found = written_in(scope, KINDS["functions"] | KINDS["methods"])
        if not found:
            return Finding(0.0, NO_DEFINITION["functions"]())
        long = sorted(
            (pair for pair in found if pair[1].lines > self.at_most), key=lambda pair: -pair[1].lines
        )
        short = len(found) - len(long)
        values = {
            "short": short,
            "all": FUNCTIONS(count=len(found)),
            "at_most": LINES(count=self.at_most),
        }
        message = (
            TOO_LONG(**values, name=long[0][1].name, lines=long[0][1].lines) if long else SHORT(**values)
        )
        piece, first = (long or found)[0]
        return Finding(short / len(found), message, piece.at(first.first))

    def default_label(self) -> Message:
        """After what it asks for."""
        return FUNCTIONS_OF(at_most=LINES(count=self.at_most))


class Naming(CheckKind):
    """Names that the student gave are written in a style. Share = names in it / all, each once.

    Names of one letter, constants in capitals, columns and names that the language prescribes do not count.
    """

    kind: Literal["naming"] = "naming"
    functions: Style | None = None
    variables: Style | None = None
    classes: Style | None = None

    title: ClassVar[MessageType] = define_message("check.naming.title", "Naming style")
    about: ClassVar[MessageType] = define_message(
        "check.naming.about", "Names that the student chose follow a naming style."
    )
    field_titles: ClassVar[Mapping[str, MessageType]] = {
        "functions": define_message("check.naming.functions", "Names of functions"),
        "variables": define_message("check.naming.variables", "Names of variables"),
        "classes": define_message("check.naming.classes", "Names of classes"),
    }
    usual_label: ClassVar[MessageType] = define_message("check.naming.label", "names are written as asked")
    at_once: ClassVar[bool] = True

    def evaluate(self, context: Context, scope: Scope) -> Finding:
        """Share of the student's names that are written in the style asked for."""
        found: dict[tuple[str, str], Named] = {}
        for kind, name, at in _names(scope):
            style: Style | None = getattr(self, kind)
            if style is not None and len(name) > 1:
                found.setdefault((kind, name), (name, style, at))
        if not found:
            return Finding(0.0, NO_NAMES())
        other = [
            (name, style, at)
            for (kind, _), (name, style, at) in found.items()
            if not _fits(kind, name, style)
        ]
        values = {"right": len(found) - len(other), "all": NAMES(count=len(found))}
        message = OTHER_STYLE(**values, name=other[0][0], style=other[0][1]) if other else IN_STYLE(**values)
        place = (other or list(found.values()))[0][2]
        return Finding(1 - len(other) / len(found), message, place)


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
