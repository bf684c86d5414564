"""Checks on what comes out in a place, as the solution shows it: search strings alone prove no result."""

from __future__ import annotations

import re
from collections.abc import Sequence

from grading.assignments.legacy_import.solution_and_starter import Works, key_of, outputs_of, words_printed
from grading.checks.kinds.outputs import OutputClose, OutputMatches
from grading.checks.kinds.runs import OutputEquals
from grading.checks.kinds.tests import VariableEquals
from grading.checks.outputs import NUMBER, plain_output
from grading.checks.scope import Piece
from grading.domain.check import Check

SHARE = 6
"""How many times as much results weigh as the search strings of the same place, together."""
RUN = frozenset({"r", "python"})
VALUES = "the variables have the values of the solution"
FEWEST_NUMBERS = 3
"""In outputs whose words are the student's own; with fewer, the words have to be right."""
MOST_LINES = 8
_SPACE = re.compile(r"\s+")


def results_for(where: str | None, works: Works, named: frozenset[str], strings: float) -> list[Check]:
    """Checks that compare what comes out with the solution; none where it has no code of its own.

    `named` are variables that the file names, `strings` is the weight of the search strings there.
    """
    own = [piece for piece in works.own(where) if piece.facts.language in RUN]
    if not own:
        return []
    changing = [piece for piece in own if key_of(piece) in works.changing]
    shown = _changing(own, works) if changing else _steady(own)
    values: list[Check] = []
    names = works.prescribed(where, named)
    if names and not changing and not works.lacking:
        values.append(VariableEquals(names=names, label=VALUES))
    found = [*shown, *values]
    whole = SHARE * max(1.0, strings)
    return [check.model_copy(update={"weight": whole / len(found)}) for check in found]


def _steady(own: Sequence[Piece]) -> list[Check]:
    """For outputs that are the same at every run."""
    text = plain_output([one for piece in own for one in outputs_of(piece)])
    if any(map(words_printed, own)) and len(set(NUMBER.findall(text))) >= FEWEST_NUMBERS:
        return [OutputClose(label="the outputs show the numbers of the solution")]
    return [OutputEquals(label="the outputs are those of the solution")]


def _changing(own: Sequence[Piece], works: Works) -> list[Check]:
    """For outputs that depend on the day or on chance: their lines, with any numbers."""
    patterns: dict[str, None] = {}
    for piece in own:
        for line in plain_output(outputs_of(piece)).split("\n"):
            pattern = _pattern(line, works)
            if pattern:
                patterns[pattern] = None
    if not patterns:
        return []
    chosen = tuple(patterns)[:MOST_LINES]
    return [OutputMatches(all_of=chosen, label="the outputs look like those of the solution")]


def _pattern(line: str, works: Works) -> str:
    """The line with any numbers; empty where the starter prints it, or it says too little."""
    said = _SPACE.sub(" ", line).strip()
    letters = sum(char.isalpha() for char in said)
    if letters < 4 or len(said) > 120 or said.startswith(("#", "ℹ")):
        return ""
    label = NUMBER.split(said)[0].strip(" :")
    if len(label) >= 4 and label in works.given_text:
        return ""
    words = [_word(word) for word in said.split(" ")]
    return r"\s+".join(words)


def _word(word: str) -> str:
    return r"\S*\d\S*" if any(char.isdigit() for char in word) else re.escape(word)
