"""Clusters of similar submissions as a graph: SVG drawn on the server; the list of pairs says the same."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from grading.store.views.similar_pairs import PairLine, Side

MOST_CLUSTERS = 24
MOST_NODES = 40
"""Of one cluster."""
_STEP = 80.0
"""Between neighbours on the circle of a cluster."""
_MARGIN = 60.0
_LABEL = 32.0
_LEAST_RADIUS = 58.0
_NEARLY_NOTHING = 1e-6
WIDTH = 944.0
"""Of a row of clusters; a larger cluster is a row of its own."""


@dataclass(frozen=True)
class Node:
    """A submission at its place; its name stands above or below."""

    side: Side
    x: float
    y: float
    label_y: float


@dataclass(frozen=True)
class Edge:
    """A pair, thicker the more it shares."""

    pair: PairLine
    x1: float
    y1: float
    x2: float
    y2: float
    width: float


@dataclass(frozen=True)
class Graph:
    """What is drawn."""

    width: float
    height: float
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    hidden: int
    """Clusters, and submissions of large ones, that are only in the list."""


def drawn(pairs: Sequence[PairLine], clusters: Sequence[tuple[str, ...]]) -> Graph:
    """The clusters in rows, the submissions of each on a circle."""
    sides = {side.submission_id: side for pair in pairs for side in (pair.one, pair.other)}
    places, width, height = _places(clusters[:MOST_CLUSTERS])
    nodes = tuple(Node(sides[one], x, y, y + (-13 if above else 22)) for one, (x, y, above) in places.items())
    hidden = len(clusters[MOST_CLUSTERS:]) + sum(max(0, len(one) - MOST_NODES) for one in clusters)
    return Graph(width, height, nodes, tuple(_edges(pairs, places)), hidden)


def _places(
    clusters: Sequence[tuple[str, ...]],
) -> tuple[dict[str, tuple[float, float, bool]], float, float]:
    """The place of each submission, whether it is in the upper half of its cluster; the size of all."""
    places: dict[str, tuple[float, float, bool]] = {}
    left = top = row = widest = 0.0
    for cluster in clusters:
        shown = cluster[:MOST_NODES]
        radius = max(_LEAST_RADIUS, _STEP * len(shown) / (2 * math.pi))
        # two lie beside each other, more of them on a circle
        wide, high = 2 * (radius + _MARGIN), 2 * _LABEL + (2 * radius if len(shown) > 2 else 0)
        if left + wide > WIDTH and left:
            left, top, row = 0.0, top + row, 0.0
        for number, one in enumerate(shown):
            angle = math.pi + 2 * math.pi * number / len(shown)
            x, y = left + wide / 2 + radius * math.cos(angle), top + high / 2 + radius * math.sin(angle)
            places[one] = round(x, 1), round(y, 1), math.sin(angle) < -_NEARLY_NOTHING
        left, row = left + wide, max(row, high)
        widest = max(widest, left)
    return places, round(widest, 1), round(top + row, 1)


def _edges(pairs: Sequence[PairLine], places: Mapping[str, tuple[float, float, bool]]) -> Iterator[Edge]:
    for pair in pairs:
        one, other = places.get(pair.one.submission_id), places.get(pair.other.submission_id)
        if one and other:
            yield Edge(pair, *one[:2], *other[:2], round(1 + 4 * pair.share, 1))
