"""Figures of similarity on programs in Python: planted copies found, false pairs, and what groups save."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.similarity.planted import copied, parsable
from grading.domain.document import Cell, Document
from grading.domain.rubric import Criterion, Rubric
from grading.similarity import Answered, Outcome, answers_of, compared, grouped
from grading.similarity.pairs import Work
from grading.similarity.works import marks_of

WHOLE = Rubric(criteria=(Criterion(id="code", title="Code", points=1),))


def document(source: str, path: str = "work.py") -> Document:
    """A script that is all the student's own."""
    source = source.replace("\r\n", "\n")
    added = tuple(range(1, source.count("\n") + 2))
    cell = Cell(number=1, kind="code", source=source, language="python", added=added)
    return Document(path=path, kind="script", language="python", cells=(cell,))


@dataclass(frozen=True)
class Copies:
    """What became of planted copies."""

    planted: int
    found: int
    silent: int
    """Too short, or too much like most others, to be compared; they are not counted as missed."""

    @property
    def share(self) -> float:
        """Of those that can be compared."""
        return self.found / max(self.planted - self.silent, 1)


@dataclass(frozen=True)
class FalsePairs:
    """Pairs of programs of different questions, and how many were found."""

    pairs: int
    found: int

    @property
    def per_thousand(self) -> float:
        """Of all such pairs."""
        return 1000 * self.found / self.pairs


def work(name: str, owner: int, source: str, assignment: int = 1) -> Work:
    """A program as a work of a class."""
    marks = frozenset(mark.value for mark in marks_of([document(source)]))
    return Work(name, assignment, frozenset({owner}), marks)


def planted_copies(sources: Sequence[str], seed: int = 1, each: int = 10) -> Copies:
    """Plants a copy of some programs in their class, time and again until each had one."""
    chance = random.Random(seed)
    sources = parsable(sources)
    works = [work(f"w{n:04}", n, source) for n, source in enumerate(sources)]
    found = silent = 0
    for start in range(0, len(sources), each):
        batch = range(start, min(start + each, len(sources)))
        copies = [work(f"c{n:04}", len(sources) + n, copied(sources[n], chance)) for n in batch]
        comparison = compared([*works, *copies])
        known = {frozenset({pair.one, pair.other}) for pair in comparison.pairs}
        for n in batch:
            quiet = {f"w{n:04}", f"c{n:04}"} & set(comparison.silent)
            silent += bool(quiet)
            found += frozenset({f"w{n:04}", f"c{n:04}"}) in known
    return Copies(len(sources), found, silent)


def false_pairs(one: Sequence[str], other: Sequence[str]) -> FalsePairs:
    """Compares the programs of two questions."""
    mine = [work(f"a{n:04}", n, source, 1) for n, source in enumerate(one)]
    theirs = [work(f"b{n:04}", 10_000 + n, source, 2) for n, source in enumerate(other)]
    pairs = compared(mine, theirs).pairs
    wrong = sum(pair.one[0] != pair.other[0] for pair in pairs)
    return FalsePairs(len(one) * len(other), wrong)


@dataclass(frozen=True)
class Groups:
    """What groups of answers save in a class."""

    programs: int
    groups: int
    largest: int
    mixed: int
    """Groups of equal answers with right and wrong ones."""
    near: int
    """Groups that are proposed as similar to another one."""
    near_mixed: int
    """Of these, how many have another outcome than the group they are proposed to."""

    @property
    def saved(self) -> int:
        """Judgements that need not be made."""
        return self.programs - self.groups


def groups_of(programs: Mapping[str, tuple[str, bool]]) -> Groups:
    """Groups programs, given by name with their source and whether they are right."""
    answers = []
    for name, (source, right) in programs.items():
        (answer,) = answers_of([document(source)], WHOLE, ()).values()
        outcome = Outcome(share=1.0 if right else 0.0)
        answers.append(Answered(name, answer.key, answer.fingerprints, outcome))
    found = grouped(answers)
    by_key = {group.key: group for group in found}
    near = [group for group in found if group.near]
    return Groups(
        programs=len(programs),
        groups=len(found),
        largest=max(group.size for group in found),
        mixed=sum(group.mixed for group in found),
        near=len(near),
        near_mixed=sum(
            group.outcomes[0][0].right != by_key[group.near].outcomes[0][0].right for group in near
        ),
    )
