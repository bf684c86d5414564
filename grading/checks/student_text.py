"""What the student wrote at a place, as support for levels that no check decides."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property

from grading.checks.scope import Scopes
from grading.domain.document import Document, Location

_SENTENCE_END = re.compile(r"[.!?。！？;]\s|\n")
_TALK = re.compile(
    r"\b(?:grad(?:e|er|ing|ed)s?|rubric|criteri(?:on|a)|full marks?|points?|levels?|awards?|reviewers?"
    r"|evaluat\w{1,5}|examiners?|instructors?|language model|chat-?bot|assistant"
    r"|judge\w{0,5}|submission|hand-?in"
    r"|homework|teachers?"
    r"|professor|instructions?|perfect|flawless|punkte?|punktzahl|note|nota|puan|баллы?|оценк\w|満点|满分)\b",
    re.IGNORECASE,
)
"""Words of which a sentence about grading has at least one."""
_WORD = re.compile(r"[^\W\d_]{2,}|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")

MOST_CHARS = 20_000
"""Of one cell: whoever wrote more has written enough."""


class OwnWork:
    """The lines of a submission that its student wrote, to be asked about places."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self._scopes = Scopes(documents)

    def words(self, where: str | None) -> int:
        """Words of the student's own in a criterion's place, code counted like prose.

        Sentences that may speak about grading are left out: whoever writes nothing else has not answered.
        """
        count = 0
        for piece in self._scopes.find(where).added:
            sentences = _SENTENCE_END.split(piece.own[:MOST_CHARS])
            count += sum(len(_WORD.findall(said)) for said in sentences if not _TALK.search(said))
        return count

    def wrote(self, place: Location | None) -> bool:
        """Whether a place is a line the student wrote; outputs and lines of the starter are none."""
        if place is None or place.line is None:
            return False
        return (place.document, place.cell, place.line) in self._lines

    @cached_property
    def _lines(self) -> frozenset[tuple[str, int | None, int]]:
        return frozenset(
            (document.path, cell.number if document.kind == "notebook" else None, cell.first_line + n - 1)
            for document in self._scopes.documents
            for cell in document.cells
            for n in cell.added
        )
