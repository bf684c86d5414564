"""Levels without a model: from evidence where there are checks, from static signals elsewhere."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from grading.domain.document import Location
from grading.domain.evidence import CheckOutcome
from grading.domain.jobs import Job
from grading.domain.rubric import Criterion
from workers.machine.engines.rules.facts import (
    Facts,
    Line,
    Nouns,
    calls_in,
    cites,
    join_within,
    kinds,
    together,
)
from workers.machine.sanitize import SHORTEST, normal

_FULL_ANSWER_WORDS = 60
_FULL_CODE_LINES = 8
_DOCUMENTATION = re.compile(
    r"document|\bcomment|javadoc|jsdoc|doxygen|roxygen|docstring|dokument|kommentar", re.IGNORECASE
)
"""In the title or id of a criterion: it asks for comments, not for an answer."""
_DESCRIBED = 3
"""Words of a comment that say what a definition is for."""
_PATTERN_SIGNS = re.compile(r"[\\^$*+?\[\]{}|]")
"""Messages that cite regular expressions help nobody who reads a reason."""


@dataclass(frozen=True)
class Judged:
    """A level, where it comes from, and lines that show it."""

    criterion: Criterion
    level: int
    sentences: tuple[str, ...]
    quotes: tuple[str, ...]
    met: tuple[CheckOutcome, ...] = ()
    """The checks met in full that point at a line."""
    used: tuple[str, ...] = ()
    """Functions called in those lines."""
    lacking: tuple[str, ...] = ()
    """What is missing, as sentences for the student."""

    @property
    def share(self) -> float:
        """From 0 to 1."""
        return self.level / self.criterion.highest


def nearest(share: float, highest: int) -> int:
    """The level closest to a share, halves upwards."""
    return min(highest, max(0, math.floor(share * highest + 0.5)))


def judge(job: Job, criterion: Criterion) -> Judged:
    """The level of one criterion; nothing added in its place is level 0."""
    evidence = job.evidence.of(criterion.id)
    here = Facts.of(job, criterion.where)
    if evidence is not None and evidence.share is not None:
        return _by_checks(job, criterion, here, evidence.share, evidence.outcomes)
    if not here.code and not here.prose:
        nothing = "There is no work of your own for this criterion."
        return Judged(criterion, 0, (nothing,), (), lacking=(nothing,))
    every = Facts.of(job)
    nouns = Nouns.of(every)
    quotes = _best_sentences(here)
    if about_documentation(criterion) and here.code:
        found = documentation_share(here, nouns)
        if here.written:
            found = max(found, prose_share(here, every.names, nouns), key=lambda each: each.share)
    elif criterion.stage == "feedback" or not here.code:
        found = prose_share(here, every.names, nouns)
    else:
        found, quotes = code_share(here, nouns), _quotes(job, here, ())
    level = nearest(found.share, criterion.highest)
    return Judged(criterion, level, (*found.said, *found.lacking), quotes, lacking=found.lacking)


def _by_checks(
    job: Job, criterion: Criterion, here: Facts, share: float, outcomes: tuple[CheckOutcome, ...]
) -> Judged:
    documented = about_documentation(criterion) and not here.written
    met = tuple(o for o in outcomes if o.earned >= 1 and o.location is not None and o.location.line)
    return Judged(
        criterion,
        nearest(share, criterion.highest),
        _outcome_sentences(outcomes),
        (documented and _best_sentences(here)) or _quotes(job, here, outcomes),
        met,
        _used(here, met) if criterion.where is not None or len(met) > 1 else (),
        tuple(_lacking(outcomes)),
    )


@dataclass(frozen=True)
class Measured:
    """How far something goes without a check for it, what there is and what is missing."""

    share: float
    said: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()


def about_documentation(criterion: Criterion) -> bool:
    """Whether a criterion is about comments and documentation in code."""
    return bool(_DOCUMENTATION.search(f"{criterion.title} {criterion.id}"))


def documentation_share(facts: Facts, nouns: Nouns) -> Measured:
    """How far the comments go: how many definitions say what they are for, and how much is said in all."""
    lines = facts.comments
    amount = min(1.0, lines / max(1.0, len(facts.coded) / 8))
    defined = [d for d in facts.definitions if d.kind not in ("table", "view")]
    if not lines:
        what = kinds(facts) or "steps"
        return Measured(0.0, (), (f"No comment of yours explains what your {what} are for.",))
    said = f"Your comments have {facts.comment_words} words on {lines} line{'' if lines == 1 else 's'}."
    if not defined:
        few = ("There are few comments for this amount of code.",) if amount < 0.75 else ()
        return Measured(amount, (said,), few)
    described = [d for d in defined if d.comment is not None and d.comment.words >= _DESCRIBED]
    formal = [d for d in described if d.documented]
    share = 0.25 * amount + (0.5 * len(described) + 0.25 * len(formal)) / len(defined)
    what = together(d.kind for d in defined)
    without = next((d for d in defined if d not in described), None)
    count = f"{len(described)} of your {len(defined)} {what} have a comment that explains them."
    if without is not None:
        return Measured(share, (said,), (f"{count[:-1]}; '{without.name}' has none.",))
    wanted = () if len(formal) == len(defined) else (f"Not all of these comments are {nouns.doc_form}.",)
    return Measured(share, (count, said), wanted)


def prose_share(facts: Facts, names: frozenset[str], nouns: Nouns) -> Measured:
    """How far a written answer goes: length, variety, what it cites and whether it argues."""
    words = facts.words
    if not words:
        return Measured(0.0, (), ("There is no answer in your own words.",))
    length = min(1.0, len(words) / _FULL_ANSWER_WORDS)
    variety = min(1.0, len(set(words)) / max(12.0, 0.6 * len(words)))
    cited = sum(any(c.isdigit() for c in s) for s in facts.sentences) + sum(
        cites(s, names) for s in facts.sentences
    )
    specific = min(1.0, cited / 2)
    argued = min(1.0, facts.reasons / 2)
    share = 0.45 * length + 0.1 * variety + 0.25 * specific + 0.2 * argued
    there, lacking = [f"You wrote {len(words)} words."], []
    own = "your own data or results" if nouns.data else "your own code or results"
    none = "number or column of your data" if nouns.data else f"number or {nouns.step} of your work"
    if cited:
        there.append(f"It cites {own}.")
    else:
        lacking.append(f"It mentions no {none}.")
    if facts.reasons:
        there.append("It gives reasons.")
    else:
        lacking.append("It gives no reasons.")
    return Measured(share, tuple(there), tuple(lacking))


def code_share(facts: Facts, nouns: Nouns) -> Measured:
    """How far code goes without a check for it: amount, variety, results, comments, errors."""
    amount = min(1.0, len(facts.coded) / _FULL_CODE_LINES)
    variety = min(1.0, len(facts.calls) / 4)
    cells = sum(bool(c.added) and c.kind == "code" for _, c in facts.cells)
    notebook = any(d.kind == "notebook" for d, _ in facts.cells)
    shown = facts.results / cells if notebook and cells else 1.0
    comments = min(1.0, facts.comments / max(1.0, len(facts.coded) / 8))
    share = 0.35 * amount + 0.25 * variety + 0.25 * shown + 0.15 * comments
    if facts.errors:
        share *= 0.5
    if notebook and facts.not_run:
        share *= 0.7
    called = f"{len(facts.calls)} different {nouns.steps}" if len(facts.calls) != 1 else f"one {nouns.step}"
    said = (
        f"Your own code has {len(facts.coded)} line{'' if len(facts.coded) == 1 else 's'} and calls {called}."
    )
    lacking = []
    if facts.errors:
        lacking.append(f"{'A cell' if notebook else 'The program'} ends with an error.")
    if facts.not_run:
        lacking.append("Some code was not run.")
    if not facts.comments:
        lacking.append("There are no comments.")
    return Measured(share, (said,), tuple(lacking))


def _lacking(outcomes: tuple[CheckOutcome, ...]) -> Iterator[str]:
    """What the checks did not find, the least met first; one that cites a pattern is called by its label."""
    for outcome in sorted(outcomes, key=lambda o: (o.earned, -o.weight)):
        if outcome.earned >= 1 or not outcome.weight:
            continue
        name = outcome.label or outcome.check
        message = "" if _PATTERN_SIGNS.search(outcome.message) else outcome.message.rstrip(".")
        state = "not met" if outcome.earned <= 0 else "partly met"
        yield f"'{name}' is {state}{f' ({message})' if message and message != name else ''}."


def _outcome_sentences(outcomes: tuple[CheckOutcome, ...]) -> tuple[str, ...]:
    """What earned less than all first, as that explains the level."""
    said = []
    for outcome in sorted(outcomes, key=lambda o: (o.earned, -o.weight)):
        name = outcome.label or outcome.check
        message = "" if _PATTERN_SIGNS.search(outcome.message) else outcome.message.rstrip(".")
        message = "" if message == name else message
        state = "met" if outcome.earned >= 1 else "not met" if outcome.earned <= 0 else "partly met"
        if not outcome.weight:
            state = "not counted"
        said.append(f"{name}: {state}{' – ' if message else ''}{message}.")
        said.append(f"{name}: {state}.")
    return tuple(dict.fromkeys(said))


def reason(judged: Judged, limit: int) -> str:
    """A reason of whole sentences within `limit` characters."""
    kept: list[str] = []
    named: set[str] = set()
    for sentence in judged.sentences:
        name = sentence.partition(":")[0]
        if (":" in sentence and name in named) or len(join_within([*kept, sentence], limit)) <= len(
            " ".join(kept)
        ):
            continue
        kept.append(sentence)
        named.add(name)
    fallback = f"Level {judged.level} of {judged.criterion.highest} by the automatic checks."
    return join_within(kept or [fallback], limit)


def _quotes(job: Job, facts: Facts, outcomes: tuple[CheckOutcome, ...]) -> tuple[str, ...]:
    """Lines the checks point at, then the fullest lines of the student's own in the criterion's place."""
    pointed = [
        text
        for outcome in outcomes
        if outcome.earned > 0 and outcome.location is not None and (text := _line_at(job, outcome.location))
    ]
    own = sorted((line for line in facts.code if line.bare.strip()), key=lambda line: -len(line.bare.strip()))
    lines = [line.text.strip() for line in own[:2]] or list(_best_sentences(facts))
    return tuple(dict.fromkeys(line for line in (*pointed, *lines) if len(normal(line)) >= SHORTEST))


def _used(facts: Facts, met: tuple[CheckOutcome, ...]) -> tuple[str, ...]:
    places = {(o.location.document, o.location.cell, o.location.line) for o in met if o.location is not None}
    lines = (line for line in facts.code if (line.document.path, line.cell.number, line.number) in places)
    return tuple(
        dict.fromkeys(name for line in lines for name in (*calls_in(line), *facts.parsed_calls(line)))
    )


def _line_at(job: Job, place: Location) -> str:
    if place.line is None:
        return ""
    for document, cell in Facts.of(job).cells:
        if document.path != place.document or (place.cell is not None and cell.number != place.cell):
            continue
        index = place.line - cell.first_line
        if 0 <= index < len(cell.lines) and index + 1 in cell.added:
            return cell.lines[index].strip()
    return ""


def _best_sentences(facts: Facts) -> tuple[str, ...]:
    """The student's lines of prose that argue or cite a number, the longest first."""

    def weight(line: Line) -> tuple[bool, int]:
        return any(c.isdigit() for c in line.text), len(line.text)

    sentences = facts.sentences[:100]
    lines = [line for line in facts.prose[:300] if any(s[:25] in line.text for s in sentences)]
    return tuple(line.text.strip() for line in sorted(lines, key=weight, reverse=True)[:2])
