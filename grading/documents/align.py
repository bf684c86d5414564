"""Which cell of the starter a student's cell comes from."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise

from grading.documents.cell_context import comment_marks
from grading.documents.line_comparison import keys
from grading.domain.document import Cell

_WORD = re.compile(r"[^\W\d_]\w{2,}")
_LEAST = 0.12
"""Share of a starter cell (rare lines and words weigh more) that has to be found again."""
_COPY = 0.5
"""Share of a further cell that has to come from one starter cell to count as a piece of it."""
_ORDER = 0.1


def align(cells: Sequence[Cell], starter: Sequence[Cell]) -> tuple[list[int | None], list[int | None]]:
    """For each cell the index of its starter cell, one to one; else of the one it is a piece of.

    Works on lines and words they share, so cells may be moved, inserted, deleted or rewritten. What is left
    between two matched neighbours is paired by position if it is equally many of the same kind.
    """
    sharing = _Sharing(starter)
    scores = [sharing.scores(cell) for cell in cells]
    ranked = sorted(
        (
            (whole + _ORDER * (own + _nearness(i, len(cells), j, len(starter))), -i, -j)
            for i, found in enumerate(scores)
            for j, (whole, own) in found.items()
            if whole >= _LEAST
        ),
        reverse=True,
    )
    match: list[int | None] = [None] * len(cells)
    used: set[int] = set()
    for _, minus_i, minus_j in ranked:
        if match[-minus_i] is None and -minus_j not in used:
            match[-minus_i] = -minus_j
            used.add(-minus_j)
    pieces: list[int | None] = [None] * len(cells)
    for i, found in enumerate(scores):
        if match[i] is None and found:
            part, j = max((own, -j) for j, (_, own) in found.items())
            pieces[i] = -j if part >= _COPY else None
    _fill_gaps(cells, starter, match, pieces)
    return match, pieces


def likeness(cells: Sequence[Cell], starter: Sequence[Cell]) -> float:
    """The share of the starter's lines that are found again, from 0 to 1."""
    given = {text for cell in starter for text in keys(cell) if text}
    own = {text for cell in cells for text in keys(cell) if text}
    return len(given & own) / len(given) if given else 0.0


def _nearness(i: int, of_i: int, j: int, of_j: int) -> float:
    return 1 - abs(i / max(of_i, 1) - j / max(of_j, 1))


def _features(cell: Cell) -> set[str]:
    lines = {f"{cell.kind} {text}" for text in keys(cell) if text}
    marks = comment_marks(cell.language) if cell.kind == "code" else ("```",)
    spoken = (line for line in cell.lines if not line.lstrip().startswith(marks))
    return lines | {word for line in spoken for word in _WORD.findall(line[:2000])}


class _Sharing:
    """An index of the starter's lines and words, each weighing more the fewer cells have it."""

    def __init__(self, starter: Sequence[Cell]) -> None:
        self.kinds = [cell.kind == "code" for cell in starter]
        features = [_features(cell) for cell in starter]
        count = Counter(feature for found in features for feature in found)
        self.weight = {feature: _weight(feature, n, len(starter)) for feature, n in count.items()}
        self.total = [sum(self.weight[feature] for feature in found) for found in features]
        self.where: defaultdict[str, list[int]] = defaultdict(list)
        for j, found in enumerate(features):
            for feature in found:
                if count[feature] <= max(8, len(starter) // 4):  # what most cells have tells nothing
                    self.where[feature].append(j)

    def scores(self, cell: Cell) -> dict[int, tuple[float, float]]:
        """By starter cell: the share of it found in `cell`, and the share of `cell`'s lines found in it."""
        own = _features(cell)
        shared: defaultdict[int, float] = defaultdict(float)
        lines: Counter[int] = Counter()
        for feature in own:
            for j in self.where.get(feature, ()):
                shared[j] += self.weight[feature]
                lines[j] += " " in feature
        of_lines = max(sum(" " in feature for feature in own), 1)
        code = cell.kind == "code"
        return {
            j: (value / max(self.total[j], 1e-9), lines[j] / of_lines)
            for j, value in shared.items()
            if self.kinds[j] == code
        }


def _weight(feature: str, cells_with: int, cells: int) -> float:
    rarity = math.log(1 + cells / cells_with)
    return rarity * (3.0 if " " in feature else 1.0)


def _fill_gaps(
    cells: Sequence[Cell], starter: Sequence[Cell], match: list[int | None], pieces: list[int | None]
) -> None:
    """Pairs, between neighbours that match in order, what is left if it is equally many of the same kind."""
    used = {j for j in match if j is not None}
    anchors = [(-1, -1), *((i, j) for i, j in enumerate(match) if j is not None), (len(cells), len(starter))]
    for (i, j), (next_i, next_j) in pairwise(anchors):
        free_i = [n for n in range(i + 1, next_i) if pieces[n] is None]
        free_j = [n for n in range(j + 1, next_j) if n not in used]
        if len(free_i) == len(free_j) and all(
            cells[a].kind == starter[b].kind for a, b in zip(free_i, free_j, strict=True)
        ):
            for a, b in zip(free_i, free_j, strict=True):
                match[a] = b
