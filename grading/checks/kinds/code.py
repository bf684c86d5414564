"""Kinds of checks on parsed code: what is called, defined and written."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ClassVar, Literal

from grading.checks import field_labels
from grading.checks.context import ASKS_FOR_NOTHING, NO_CODE, Context, Finding
from grading.checks.kind import CheckKind
from grading.checks.message_parts import clauses, listed
from grading.checks.parsing.code_facts import Index, Mention
from grading.checks.scope import Piece, Scope
from grading.domain.document import Location
from grading.domain.messages import Message, MessageType, define_message
from grading.domain.patterns import matches, readable

Find = Callable[[str], Location | None]

USES = define_message("check.uses", "uses %(names)s")
DEFINES = define_message("check.defines", "defines %(names)s")
AVOIDS = define_message("check.avoids", "avoids %(names)s")
HAS = define_message("check.has", "has %(names)s")
HAS_NONE = define_message("check.has_none", "has no %(patterns)s")
NOT_ALLOWED = define_message("check.not_allowed", "uses %(name)s, which is not allowed here")
AVOIDED = define_message("check.avoided", "does not use %(names)s")
UNWANTED = define_message("check.unwanted", "has %(pattern)s, which should not be there")
MISSING = define_message("check.missing", "%(names)s is missing")
SEVERAL_MISSING = define_message("check.several_missing", "%(names)s are missing")
NONE_FOUND = define_message("check.none_found", "none of %(names)s was found")


class Uses(CheckKind):
    """Calls these functions, found in parsed code. Share = found / asked; with `any_of` one is enough.

    A name may be qualified (`dplyr::filter`, `pd.read_csv`) or bare; an operator such as `%>%` counts.
    """

    kind: Literal["uses"] = "uses"
    all_of: tuple[str, ...] = ()
    any_of: tuple[str, ...] = ()

    title: ClassVar[MessageType] = define_message("check.uses.title", "Uses functions")
    about: ClassVar[MessageType] = define_message("check.uses.about", "The code calls these functions.")
    field_titles: ClassVar[Mapping[str, MessageType]] = {
        "all_of": field_labels.ALL_OF,
        "any_of": field_labels.ANY_OF,
    }
    needed_keys: ClassVar[tuple[str, ...]] = ("all_of", "any_of")
    at_once: ClassVar[bool] = True

    def evaluate(self, context: Context, scope: Scope) -> Finding:
        """Share of the asked functions that the student's lines call."""

        def find(name: str) -> Location | None:
            wanted = context.accepted(name)
            return _first(scope.code, lambda piece: piece.facts.called, wanted)

        return _asked(self.all_of, self.any_of, find, USES, scope)

    def default_label(self) -> Message:
        """After what it asks for."""
        return USES(names=listed((*self.all_of, *self.any_of), 4))


class Avoids(CheckKind):
    """The code calls none of these functions (all or nothing)."""

    kind: Literal["avoids"] = "avoids"
    names: tuple[str, ...]

    title: ClassVar[MessageType] = define_message("check.avoids.title", "Avoids functions")
    about: ClassVar[MessageType] = define_message(
        "check.avoids.about", "The code calls none of these functions (all or nothing)."
    )
    field_titles: ClassVar[Mapping[str, MessageType]] = {
        "names": field_labels.NAMES,
    }
    needed_keys: ClassVar[tuple[str, ...]] = ("names",)
    at_once: ClassVar[bool] = True

    def evaluate(self, context: Context, scope: Scope) -> Finding:
        """1 when none of the names is called on a line the student wrote."""
        for name in self.names:
            for piece in scope.code:
                for call in named(piece.facts.called, name):
                    # a starter's call around the student's lines is not the student's
                    if fits(call, name, piece.facts.language, strict=True) and call.first in piece.added:
                        return Finding(0.0, NOT_ALLOWED(name=name), piece.at(call.first))
        if not scope.code:
            return Finding(0.0, NO_CODE())
        return Finding(1.0, AVOIDED(names=listed(self.names)))

    def default_label(self) -> Message:
        """After what it asks for."""
        return AVOIDS(names=listed(self.names, 4))


class Defines(CheckKind):
    """Assigns these variables, columns or functions, found in parsed code.

    Counts assignment targets, `def`, SQL aliases and created tables, and columns made by a named argument
    (`mutate(x = …)`, `df.assign(x=…)`, `df["x"] = …`, `df$x <- …`).
    """

    kind: Literal["defines"] = "defines"
    all_of: tuple[str, ...] = ()
    any_of: tuple[str, ...] = ()

    title: ClassVar[MessageType] = define_message("check.defines.title", "Defines variables or functions")
    about: ClassVar[MessageType] = define_message(
        "check.defines.about", "The code defines these variables, columns or functions."
    )
    field_titles: ClassVar[Mapping[str, MessageType]] = {
        "all_of": field_labels.ALL_OF,
        "any_of": field_labels.ANY_OF,
    }
    needed_keys: ClassVar[tuple[str, ...]] = ("all_of", "any_of")
    at_once: ClassVar[bool] = True

    def evaluate(self, context: Context, scope: Scope) -> Finding:
        """Share of the asked names that the student's lines define."""

        def find(name: str) -> Location | None:
            return _first(scope.code, lambda piece: piece.facts.made, context.accepted(name))

        return _asked(self.all_of, self.any_of, find, DEFINES, scope)

    def default_label(self) -> Message:
        """After what it asks for."""
        return DEFINES(names=listed((*self.all_of, *self.any_of), 4))


class CodeMatches(CheckKind):
    """Code without comments matches these regular expressions. String literals count as code here."""

    kind: Literal["code_matches"] = "code_matches"
    all_of: tuple[str, ...] = ()
    any_of: tuple[str, ...] = ()
    none_of: tuple[str, ...] = ()

    title: ClassVar[MessageType] = define_message(
        "check.code_matches.title", "Code matches a regular expression"
    )
    about: ClassVar[MessageType] = define_message(
        "check.code_matches.about", "The code, without its comments, matches these regular expressions."
    )
    field_titles: ClassVar[Mapping[str, MessageType]] = {
        "all_of": field_labels.ALL_OF,
        "any_of": field_labels.ANY_OF,
        "none_of": define_message("check.code_matches.none_of", "None of these"),
    }
    usual_label: ClassVar[MessageType] = define_message(
        "check.code_matches.label", "the code has what is asked for"
    )
    needed_keys: ClassVar[tuple[str, ...]] = ("all_of", "any_of", "none_of")
    pattern_keys: ClassVar[tuple[str, ...]] = ("all_of", "any_of", "none_of")

    def evaluate(self, context: Context, scope: Scope) -> Finding:
        """Share of the asked patterns found in the student's code; a forbidden one makes it 0."""
        for pattern in self.none_of:
            hit = _matching(pattern, scope.code)
            if hit is not None:
                return Finding(0.0, UNWANTED(pattern=readable(pattern)), hit)
        if not self.all_of and not self.any_of:
            if not scope.code:
                return Finding(0.0, NO_CODE())
            return Finding(1.0, HAS_NONE(patterns=listed(readable(p) for p in self.none_of)))
        return _asked(
            self.all_of, self.any_of, lambda p: _matching(p, scope.code), HAS, scope, describe=readable
        )


def named(index: Index, wanted: str) -> Iterator[Mention]:
    """Mentions whose bare name may be the wanted one, which may be qualified or hold dots itself."""
    parts = (wanted, wanted.rpartition("::")[2], wanted.rpartition(".")[2])
    for part in dict.fromkeys(part.lower() for part in parts):
        yield from index.get(part, ())


def fits(mention: Mention, wanted: str, language: str, *, strict: bool = False) -> bool:
    """Whether a call or definition is the wanted one, which may be bare or qualified.

    In R a qualified name is also met by the bare one, unless `strict`: `library()` attaches it.
    """
    name, full = mention.name, mention.full
    if language == "sql":
        name, full, wanted = name.lower(), full.lower(), wanted.lower()
    if wanted in (name, full):
        return True
    if "::" in wanted and full == name and not strict:
        return wanted.rsplit("::", 1)[-1] == name
    return "." in wanted and full.endswith("." + wanted)


def _first(pieces: Sequence[Piece], take: Callable[[Piece], Index], wanted: Sequence[str]) -> Location | None:
    for piece in pieces:
        for name in wanted:
            for mention in named(take(piece), name):
                if fits(mention, name, piece.facts.language) and piece.within(mention):
                    return piece.at(piece.in_order[bisect_left(piece.in_order, mention.first)])
    return None


def _matching(pattern: str, pieces: Sequence[Piece]) -> Location | None:
    for piece in pieces:
        for first, last in matches(pattern, piece.facts.code_without_comments):
            if piece.touches(first, last):
                return piece.at(first)
    return None


def _asked(
    all_of: Sequence[str],
    any_of: Sequence[str],
    find: Find,
    found_message: MessageType,
    scope: Scope,
    describe: Callable[[str], str] = str,
) -> Finding:
    """Share = found / asked, where `any_of` counts as one."""
    if not scope.code:
        return Finding(0.0, NO_CODE())
    hits = {name: find(name) for name in (*all_of, *any_of)}
    found = [n for n in all_of if hits[n]]
    missing = [n for n in all_of if not hits[n]]
    one = [n for n in any_of if hits[n]]
    asked = len(all_of) + (1 if any_of else 0)
    if not asked:
        return Finding(None, ASKS_FOR_NOTHING())
    said = [describe(n) for n in (*found, *one)]
    parts = [found_message(names=listed(said))] if said else []
    if missing:
        lacking = MISSING if len(missing) == 1 else SEVERAL_MISSING
        parts.append(lacking(names=listed(describe(n) for n in missing)))
    if any_of and not one:
        parts.append(NONE_FOUND(names=listed(describe(n) for n in any_of)))
    place = next((hits[n] for n in (*all_of, *any_of) if hits[n]), None)
    return Finding((len(found) + bool(one)) / asked, clauses(parts), place)
