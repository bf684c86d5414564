"""Which variants a stress test makes of a submission, how they are made, and how the worst are recombined."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from grading.documents import set_apart
from grading.domain.document import Document
from grading.stress_tests import instructions, lowering, persuasion, unchanging
from grading.stress_tests.variant import (
    UNCHANGED,
    Documents,
    Expectation,
    Setting,
    Variant,
)

REPEATS = 2
"""Times each submission is graded as it is: the grader's noise is what differs between them."""
MOST_LOWERING = 8
"""Variants of one submission that must cost points; submissions take turns with the criteria."""
MOST_INSTRUCTIONS = 14
"""Instructions in one submission."""
MOST_PARTS = 4
"""Changes of one variant."""
SEPARATOR = "+"
RECOMBINED = "recombined"


@dataclass(frozen=True)
class Planned:
    """A variant of one submission, by the keys of what changes it, in this order."""

    parts: tuple[str, ...]
    family: str
    expects: Expectation = "not higher"
    criterion: str = ""

    @property
    def key(self) -> str:
        """The parts in one text."""
        return SEPARATOR.join(self.parts)


def catalogue(setting: Setting) -> Mapping[str, Variant]:
    """All variants there are for a rubric, by their keys."""
    every = (
        *(Variant(f"{UNCHANGED}.{n + 1}", UNCHANGED, _as_it_is, "same") for n in range(REPEATS)),
        *unchanging.variants(),
        *persuasion.variants(),
        *instructions.variants(),
        *lowering.variants(setting),
    )
    return {one.key: one for one in every}


def _as_it_is(documents: Documents, setting: Setting, rng: Random) -> Documents:
    return documents


def plan(setting: Setting, seed: int, number: int, total: int) -> tuple[Planned, ...]:
    """The variants of the `number`-th of so many submissions; forty ways are shared among all of them."""
    known = catalogue(setting)
    ways = instructions.chosen(Random(seed))
    mine = set(ways[number::total][:MOST_INSTRUCTIONS])
    lower = [one.key for one in known.values() if one.expects == "lower"]
    turned = lower[number % max(1, len(lower)) :] + lower[: number % max(1, len(lower))]
    mine |= set(turned[:MOST_LOWERING])
    return tuple(
        Planned((one.key,), one.family, one.expects, one.criterion)
        for one in known.values()
        if one.key in mine or (one.expects != "lower" and one.family != instructions.FAMILY)
    )


def make(
    planned: Planned, documents: Documents, setting: Setting, seed: int, source: str
) -> Documents | None:
    """The documents of a variant as a student would submit them; nothing where it changes nothing.

    The same for the same seed and `source`, which tells submissions apart. Nothing of the work is run.
    """
    known, made = catalogue(setting), documents
    for key in planned.parts:
        digest = hashlib.sha256(f"{seed}:{source}:{key}".encode()).digest()
        variant = known.get(key)
        if variant is None:
            return None
        changed = variant.change(set_apart(made, setting.starter), setting, Random(digest))
        if changed is None:
            return None
        made = changed
    found, before = (tuple(map(_as_submitted, one)) for one in (made, documents))
    return None if found == before and planned.family != UNCHANGED else found


def _as_submitted(document: Document) -> Document:
    cells = tuple(cell.model_copy(update={"added": (), "place": ""}) for cell in document.cells)
    return document.model_copy(update={"cells": cells})


def recombined(
    worst: Sequence[tuple[str, ...]], known: Collection[frozenset[str]]
) -> Mapping[tuple[str, ...], Planned]:
    """By the parts of each of the worst: these with those of the next one that gives something new."""
    seen, found = set(known), dict[tuple[str, ...], Planned]()
    for number, one in enumerate(worst):
        for other in (*worst[number + 1 :], *worst[:number]):
            parts = tuple(dict.fromkeys((*one, *other)))
            if len(parts) <= MOST_PARTS and frozenset(parts) not in seen:
                seen.add(frozenset(parts))
                found[one] = Planned(parts, RECOMBINED)
                break
    return found
