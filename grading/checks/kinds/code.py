"""Kinds of checks on parsed code: what is called, defined and written."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, Literal

from grading.checks.code_facts import Index, Mention
from grading.checks.context import Context, Finding, listed
from grading.checks.kind import CheckKind
from grading.checks.scope import Piece, Scope
from grading.domain.model import Location
from grading.domain.patterns import matches, readable

Find = Callable[[str], Location | None]


class Uses(CheckKind):
    """Calls these functions, found in parsed code. Share = found / asked; with `any_of` one is enough.

    A name may be qualified (`dplyr::filter`, `pd.read_csv`) or bare; an operator such as `%>%` counts.
    """

    kind: Literal["uses"] = "uses"
    all_of: tuple[str, ...] = ()
    any_of: tuple[str, ...] = ()

    needed_keys: ClassVar[tuple[str, ...]] = ("all_of", "any_of")
    at_once: ClassVar[bool] = True

    def evaluate(self, context: Context, scope: Scope) -> Finding:
        """Share of the asked functions that the student's lines call."""

        def find(name: str) -> Location | None:
            wanted = context.accepted(name)
            return _first(scope.code, lambda piece: piece.facts.called, wanted)

        return _asked(self.all_of, self.any_of, find, "uses", scope)

    def default_label(self) -> str:
        """After what it asks for."""
        return _named_after(self.kind, *self.all_of, *self.any_of)


class Avoids(CheckKind):
    """Calls none of these functions (1 or 0)."""

    kind: Literal["avoids"] = "avoids"
    names: tuple[str, ...]

    needed_keys: ClassVar[tuple[str, ...]] = ("names",)
    at_once: ClassVar[bool] = True

    def evaluate(self, context: Context, scope: Scope) -> Finding:
        """1 when none of the names is called on a line the student wrote."""
        for name in self.names:
            for piece in scope.code:
                for call in named(piece.facts.called, name):
                    # a starter's call around the student's lines is not the student's
                    if fits(call, name, piece.facts.language, strict=True) and call.first in piece.added:
                        return Finding(0.0, f"uses {name}, which is not allowed here", piece.at(call.first))
        if not scope.code:
            return Finding(0.0, "no code was added here")
        return Finding(1.0, f"does not use {listed(self.names)}")

    def default_label(self) -> str:
        """After what it asks for."""
        return _named_after(self.kind, *self.names)


class Defines(CheckKind):
    """Assigns these variables, columns or functions, found in parsed code.

    Counts assignment targets, `def`, SQL aliases and created tables, and columns made by a named argument
    (`mutate(x = …)`, `df.assign(x=…)`, `df["x"] = …`, `df$x <- …`).
    """

    kind: Literal["defines"] = "defines"
    all_of: tuple[str, ...] = ()
    any_of: tuple[str, ...] = ()

    needed_keys: ClassVar[tuple[str, ...]] = ("all_of", "any_of")
    at_once: ClassVar[bool] = True

    def evaluate(self, context: Context, scope: Scope) -> Finding:
        """Share of the asked names that the student's lines define."""

        def find(name: str) -> Location | None:
            return _first(scope.code, lambda piece: piece.facts.made, context.accepted(name))

        return _asked(self.all_of, self.any_of, find, "defines", scope)

    def default_label(self) -> str:
        """After what it asks for."""
        return _named_after(self.kind, *self.all_of, *self.any_of)


class CodeMatches(CheckKind):
    """Code without comments matches these regular expressions. String literals count as code here."""

    kind: Literal["code_matches"] = "code_matches"
    all_of: tuple[str, ...] = ()
    any_of: tuple[str, ...] = ()
    none_of: tuple[str, ...] = ()

    usual_label: ClassVar[str] = "the code has what is asked for"
    needed_keys: ClassVar[tuple[str, ...]] = ("all_of", "any_of", "none_of")
    pattern_keys: ClassVar[tuple[str, ...]] = ("all_of", "any_of", "none_of")

    def evaluate(self, context: Context, scope: Scope) -> Finding:
        """Share of the asked patterns found in the student's code; a forbidden one makes it 0."""
        for pattern in self.none_of:
            hit = _matching(pattern, scope.code)
            if hit is not None:
                return Finding(0.0, f"has {readable(pattern)}, which should not be there", hit)
        if not self.all_of and not self.any_of:
            if not scope.code:
                return Finding(0.0, "no code was added here")
            return Finding(1.0, f"has no {listed(readable(p) for p in self.none_of)}")
        return _asked(
            self.all_of, self.any_of, lambda p: _matching(p, scope.code), "has", scope, describe=readable
        )


def _named_after(verb: str, *names: str) -> str:
    return f"{verb} {listed(names, 4)}" if names else verb


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
    verb: str,
    scope: Scope,
    describe: Callable[[str], str] = str,
) -> Finding:
    """Share = found / asked, where `any_of` counts as one."""
    if not scope.code:
        return Finding(0.0, "no code was added here")
    hits = {name: find(name) for name in (*all_of, *any_of)}
    found = [n for n in all_of if hits[n]]
    missing = [n for n in all_of if not hits[n]]
    one = [n for n in any_of if hits[n]]
    asked = len(all_of) + (1 if any_of else 0)
    if not asked:
        return Finding(None, "the check asks for nothing")
    said = [describe(n) for n in (*found, *one)]
    parts = [f"{verb} {listed(said)}"] if said else []
    if missing:
        parts.append(f"{listed(describe(n) for n in missing)} {'is' if len(missing) == 1 else 'are'} missing")
    if any_of and not one:
        parts.append(f"none of {listed(describe(n) for n in any_of)} was found")
    place = next((hits[n] for n in (*all_of, *any_of) if hits[n]), None)
    return Finding((len(found) + bool(one)) / asked, "; ".join(parts), place)
