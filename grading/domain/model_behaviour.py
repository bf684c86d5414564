"""A fingerprint of what a model does: for servers that do not tell which weights they have.

The model continues a fixed text at temperature 0. Where the server gives them, the likeliest tokens of each
position are compared with their log-probabilities, else the beginnings of several texts. Both bear the
rounding of batches of another size; docs/decisions/0068-fingerprints-of-behaviour.md has the measurements.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

ALGORITHM = "behaviour"
"""Of digests that are such fingerprints."""
POSITIONS = 6
"""Tokens that are generated and compared."""
TOKENS = 8
"""The likeliest of a position."""
MOST_APART = 0.2
"""Mean difference of log-probabilities, in nats, of the same weights."""
LEAST_SHARED = 1 / 3
"""Of the listed tokens, with the same weights: where all are about as likely, differences are small."""
TEXTS = 8
"""Texts that are continued where a server gives no log-probabilities."""
LETTERS = 8
"""Of each continuation."""
SAME_TEXTS = 6
"""So many begin alike with the same weights."""

_STEP = 300
_LEAST = -4095 / _STEP
_TOLD, _WIDTH, _TEXT_WIDTH = 8, 5, 4
Position = Mapping[str, float]
"""Token -> log-probability, of the likeliest."""


@dataclass(frozen=True)
class Behaviour:
    """What a server tells of the weights, and what its model does."""

    told: str
    """Must be equal; empty where it tells nothing."""
    positions: tuple[Position, ...] = ()
    texts: tuple[str, ...] = ()
    """Instead of positions."""

    def same(self, other: Behaviour) -> bool:
        """Whether both are of the same weights."""
        if self.told != other.told or bool(self.positions) != bool(other.positions):
            return False
        if self.positions:
            pair = self.positions, other.positions
            return distance(*pair) <= MOST_APART and shared(*pair) >= LEAST_SHARED
        alike = sum(one == another for one, another in zip(self.texts, other.texts, strict=False))
        return len(self.texts) == len(other.texts) and alike >= min(SAME_TEXTS, len(self.texts))


def distance(one: Sequence[Position], other: Sequence[Position]) -> float:
    """The mean difference of log-probabilities.

    A token that only one side lists is at most as likely on the other side as the last one there.
    """
    return _mean(_apart(here, there) for here, there in _comparable(one, other))


def shared(one: Sequence[Position], other: Sequence[Position]) -> float:
    """The mean share of the listed tokens that both sides list."""
    pairs = _comparable(one, other)
    return _mean(len(here.keys() & there.keys()) / max(len(here), len(there)) for here, there in pairs)


def _comparable(one: Sequence[Position], other: Sequence[Position]) -> list[tuple[Position, Position]]:
    """Positions up to the first other token: behind that one the models continue different texts."""
    pairs = []
    for here, there in zip(one, other, strict=False):
        pairs.append((here, there))
        if max(here, key=here.__getitem__) != max(there, key=there.__getitem__):
            break
    return pairs


def _mean(values: Iterable[float]) -> float:
    known = list(values)
    return sum(known) / len(known) if known else 0.0


def _apart(here: Position, there: Position) -> float:
    lowest = min(here.values()), min(there.values())
    total = 0.0
    names = here.keys() | there.keys()
    for name in names:
        if name in here and name in there:
            total += abs(here[name] - there[name])
        else:
            known, bound = (here[name], lowest[1]) if name in here else (there[name], lowest[0])
            total += max(0.0, known - bound)
    return total / len(names)


def of_positions(told: Mapping[str, object], positions: Sequence[Position]) -> Behaviour:
    """A fingerprint as it is compared; `told` is what the server says of the weights."""
    kept = []
    for position in positions[:POSITIONS]:
        likeliest = sorted(position.items(), key=lambda pair: (-pair[1], pair[0]))[:TOKENS]
        hashed: dict[str, float] = {}
        for token, value in likeliest:
            hashed.setdefault(_hash(token, 3), round(max(_LEAST, min(0.0, value)) * _STEP) / _STEP)
        kept.append(hashed)
    return Behaviour(_told(told), positions=tuple(kept))


def of_texts(told: Mapping[str, object], texts: Sequence[str]) -> Behaviour:
    """A fingerprint of continuations, in the order of the texts that were continued."""
    return Behaviour(_told(told), texts=tuple(_hash(text[:LETTERS], _TEXT_WIDTH) for text in texts))


def encode(behaviour: Behaviour) -> str:
    """As results and heartbeats carry it: `behaviour:` and letters."""
    told = behaviour.told or "-" * _TOLD
    if not behaviour.positions:
        return f"{ALGORITHM}:t{told}{''.join(behaviour.texts)}"
    rows = (
        "".join(token + _number(value) for token, value in position.items())
        for position in behaviour.positions
    )
    return f"{ALGORITHM}:p{told}{'.'.join(rows)}"


def is_fingerprint(digest: str) -> bool:
    """Whether a digest is of behaviour, so that it takes tokens to make."""
    return digest.startswith(f"{ALGORITHM}:")


def decode(digest: str) -> Behaviour | None:
    """The fingerprint of a digest; None where it is none."""
    algorithm, _, value = digest.partition(":")
    kind, told, rest = value[:1], value[1 : 1 + _TOLD], value[1 + _TOLD :]
    if algorithm != ALGORITHM or kind not in ("p", "t") or len(told) < _TOLD or not rest:
        return None
    told = "" if told == "-" * _TOLD else told
    if kind == "t":
        return Behaviour(told, texts=tuple(_cut(rest, _TEXT_WIDTH)))
    try:
        positions = tuple({one[:3]: _value(one[3:]) for one in _cut(row, _WIDTH)} for row in rest.split("."))
    except ValueError:
        return None
    return Behaviour(told, positions=positions) if all(positions) else None


def same_weights(one: str, other: str) -> bool:
    """Whether two digests are of the same weights, as far as they tell."""
    if one.lower() == other.lower():
        return True
    here, there = decode(one), decode(other)
    return here is not None and there is not None and here.same(there)


def _told(told: Mapping[str, object]) -> str:
    known = sorted(told.items())
    return _hash(repr(known), _TOLD) if known else ""


def _hash(text: str, letters: int) -> str:
    made = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    return base64.urlsafe_b64encode(made).decode()[:letters]


_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def _number(value: float) -> str:
    high, low = divmod(round(-value * _STEP), 64)
    return _LETTERS[high] + _LETTERS[low]


def _value(letters: str) -> float:
    high, low = (_LETTERS.index(letter) for letter in letters)
    return -(64 * high + low) / _STEP


def _cut(text: str, width: int) -> list[str]:
    return [text[at : at + width] for at in range(0, len(text), width)]
