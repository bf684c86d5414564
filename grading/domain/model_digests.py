"""Machines that claim the same model should have the same weights: their grades are compared."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from grading.domain import model_behaviour
from grading.domain.model_behaviour import same_weights

SHOWN = 12
ALGORITHM = "sha256"
"""Of digests that do not name theirs."""
FETCH = {"ollama": "`ollama pull {}`", "hub": "`hf download {}`"}
"""Source of a model -> what brings it again."""


@dataclass(frozen=True)
class Claim:
    """What a machine says of a model: the digest of its weights as the engine tells it, or an empty one."""

    machine: str
    engine: str
    model: str
    digest: str
    source: str = ""
    """Where its engine has it from, as heartbeats tell; empty where that is not known."""


@dataclass(frozen=True)
class Difference:
    """A model that machines have with different weights; digest -> machines, the most common digest first."""

    engine: str
    model: str
    digests: Mapping[str, tuple[str, ...]]
    source: str = ""

    @property
    def alone(self) -> tuple[str, ...]:
        """The machines that differ from what more than half of all have; none where there is no such half."""
        first, *others = self.digests.values()
        rest = [name for names in others for name in names]
        return tuple(sorted(rest)) if len(first) > len(rest) else ()

    @property
    def message(self) -> str:
        """Who has what, in a sentence without its full stop."""
        who = "; ".join(f"{short(digest)} on {_words(names)}" for digest, names in self.digests.items())
        verb = "differs" if len(self.alone) == 1 else "differ"
        lone = f". {_words(self.alone)} {verb} from most" if self.alone else ""
        return f"machines have different weights under the name {self.model} ({self.engine}): {who}{lone}"

    @property
    def remedy(self) -> str:
        """What to do about it, in the imperative."""
        everyone = {name for names in self.digests.values() for name in names}
        there = self.alone or tuple(sorted(everyone))
        where, worker = f"on {_words(there)}", "its worker" if len(there) == 1 else "their workers"
        if self.source in FETCH and not self.model.startswith(("/", ".", "~")):
            fetch = FETCH[self.source].format(self.model)
            return f"run {fetch} {where}, or `grader deploy` with --model-folder, and restart {worker}"
        return f"load the same files {where}, for example with `grader deploy` and --model-folder"


def differing(claims: Iterable[Claim]) -> tuple[Difference, ...]:
    """The models that machines claim to share and do not, by engine and model.

    Only what the same engine calls by the same name is compared, and only digests of one algorithm: other
    formats of a model never have the same. A machine counts once for each digest.
    """
    known: dict[tuple[str, str, str], dict[str, set[str]]] = {}
    sources: dict[str, str] = {}
    for one in claims:
        algorithm, digest = _parts(one.digest)
        if digest:
            sources[one.engine] = one.source or sources.get(one.engine, "")
            same_name = known.setdefault((one.engine, one.model, algorithm), {})
            first = next((have for have in same_name if same_weights(have, digest)), digest)
            same_name.setdefault(first, set()).add(one.machine)
    return tuple(
        Difference(
            engine,
            model,
            {digest: tuple(sorted(names)) for digest, names in _by_number(digests)},
            sources[engine],
        )
        for (engine, model, _), digests in sorted(known.items())
        if len(digests) > 1
    )


def claims(machine: str, stages: Mapping[str, Mapping[str, str]]) -> list[Claim]:
    """What a machine's heartbeat claims: `stages` as it has them."""
    return [
        Claim(
            machine,
            place.get("kind") or place.get("engine", ""),
            *(place.get(name, "") for name in ("model", "digest", "source")),
        )
        for place in stages.values()
    ]


class WeightsWarning(Protocol):
    """What people are told of weights."""

    @property
    def message(self) -> str:
        """What is the matter, in a sentence without its full stop."""
        ...

    @property
    def remedy(self) -> str:
        """What to do about it, in the imperative."""
        ...


@dataclass(frozen=True)
class Change:
    """A model of a machine that has other weights than those that the machine had before."""

    machine: str
    engine: str
    model: str
    before: str
    now: str

    @property
    def message(self) -> str:
        """What happened, in a sentence without its full stop."""
        weights = f"{short(self.now)}, before: {short(self.before)}"
        return f"{self.model} ({self.engine}) on {self.machine} has other weights than before ({weights})"

    @property
    def remedy(self) -> str:
        """What to do about it, in the imperative."""
        return (
            "load the former model again, or accept the new one with "
            f"`grader accept-models {self.machine}`; until then it gets no work"
        )


def changes(machine: str, stages: Mapping[str, Mapping[str, str]]) -> list[Change]:
    """The models of a machine whose weights changed: `stages` as its heartbeat has them."""
    found = {
        (place.get("engine", ""), place.get("model", "")): place
        for place in stages.values()
        if place.get("before") and place.get("digest")
    }
    return [
        Change(machine, engine, model, place["before"], place["digest"])
        for (engine, model), place in sorted(found.items())
    ]


def short(digest: str) -> str:
    """The beginning of a digest, to be compared by eye; of a fingerprint, that of its hash."""
    algorithm, value = _parts(digest)
    if algorithm == model_behaviour.ALGORITHM:
        return hashlib.sha256(digest.encode()).hexdigest()[:SHOWN]
    return value[:SHOWN]


def _parts(digest: str) -> tuple[str, str]:
    algorithm, separator, value = digest.rpartition(":")
    if algorithm == model_behaviour.ALGORITHM:
        return algorithm, digest  # compared as a whole
    return (algorithm if separator else ALGORITHM).lower(), value.lower()


def _by_number(digests: Mapping[str, set[str]]) -> list[tuple[str, set[str]]]:
    return sorted(digests.items(), key=lambda row: (-len(row[1]), row[0]))


def _words(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
