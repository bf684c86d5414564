"""Remarks of a report as comments: beside their lines, and marked where a person spoke."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TypeVar

from app.web.i18n import gettext as _
from grading.domain.jobs import Finding, Suggestion
from grading.domain.model import Location
from grading.domain.outcome import Corrected, PersonComment, Report
from grading.execution.display import ShownDocument as Ran


@dataclass(frozen=True)
class Comment:
    """A remark beside a line."""

    kind: str
    """praise, note, minor, major, suggestion, person, run or path"""
    title: str
    detail: str = ""
    example: str = ""
    anchor: str = ""
    """Where the page has it."""
    by: str = ""
    """The person who wrote it."""
    corrected: Corrected | None = None
    """Where a person changed its words, what stood there before."""


@dataclass(frozen=True)
class Listed:
    """A comment in the list by which one jumps, with its place in words."""

    comment: Comment
    place: str


Placed = tuple[Location | None, Comment]
Remark = TypeVar("Remark", Finding, Suggestion)


def finding(value: Finding, corrected: Corrected | None = None) -> Comment:
    """A finding as a comment."""
    return Comment(value.severity, value.title, value.detail, corrected=corrected)


def suggestion(value: Suggestion, corrected: Corrected | None = None) -> Comment:
    """A suggestion as a comment."""
    words = "\n\n".join((value.why, value.how))
    return Comment("suggestion", value.what, words, value.example, corrected=corrected)


def said_by(value: PersonComment) -> Comment:
    """A person's comment."""
    return Comment("person", "", value.text, by=value.by)


def remarks(report: Report, original: Report | None = None) -> Iterator[Placed]:
    """All comments of a report, people's first. `original` is the report before people changed it."""
    for added in report.comments:
        yield added.location, said_by(added)
    if report.analysis is None:
        return
    before = original.analysis if original is not None else None
    found = before.findings if before else report.analysis.findings
    for number, remark in numbered("finding", report.analysis.findings, found, report.corrected):
        yield remark.location, finding(remark, report.corrected.get(f"finding:{number}"))
    advised = before.suggestions if before else report.analysis.suggestions
    for number, advice in numbered("suggestion", report.analysis.suggestions, advised, report.corrected):
        yield advice.location, suggestion(advice, report.corrected.get(f"suggestion:{number}"))


def numbered(
    kind: str, now: Sequence[Remark], before: Sequence[Remark], corrected: Mapping[str, Corrected]
) -> Iterator[tuple[int, Remark]]:
    """What is shown with its number among all: people may have hidden some, and changes name the number."""
    left = list(now)
    for number, was in enumerate(before):
        if left and (left[0] == was or f"{kind}:{number}" in corrected):
            yield number, left.pop(0)


def of_the_run(ran: Iterable[Ran]) -> Iterator[Placed]:
    """Paths that were replaced for the run."""
    for repair in chain.from_iterable(one.repairs for one in ran):
        now = _("its own folder") if repair.now == "." else f"“{repair.now}”"
        words = _("“%(was)s” was read as %(now)s when we ran it", was=repair.was, now=now)
        yield repair.location, Comment("path", words)


class Waiting:
    """Comments that wait for their place; taking one gives it the next anchor of the page."""

    def __init__(self, placed: Iterable[Placed]) -> None:
        self._of: dict[str, list[tuple[Location, Comment]]] = {}
        self._taken = 0
        for place, comment in placed:
            if place is not None:
                self._of.setdefault(place.document, []).append((place, comment))

    def take(self, document: str, cell: int | None, line: int | None) -> tuple[Comment, ...]:
        """The comments of exactly this place, each given once."""
        if document not in self._of:
            return ()
        here = Location(document=document, cell=cell, line=line)
        return self._out(document, [pair for pair in self._of[document] if pair[0] == here])

    def rest(self, document: str, cell: int | None = None) -> tuple[Comment, ...]:
        """What is left for a cell (or the document), such as lines that do not exist."""
        left = self._of.get(document, [])
        return self._out(document, [pair for pair in left if cell is None or pair[0].cell == cell])

    def anchored(self, comment: Comment) -> Comment:
        """The comment with the next anchor."""
        self._taken += 1
        return replace(comment, anchor=f"comment-{self._taken}")

    def _out(self, document: str, pairs: list[tuple[Location, Comment]]) -> tuple[Comment, ...]:
        for pair in pairs:
            self._of[document].remove(pair)
        return tuple(self.anchored(comment) for _, comment in pairs)
