"""What checks and runs showed of an answer, so that groups can count it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from grading.domain.base_value import Value
from grading.domain.document import Cell, Document
from grading.domain.evidence import CriterionEvidence
from grading.similarity.answers import Answer

MOST_OUTPUT = 160
"""Characters of an output that are kept."""


class Outcome(Value):
    """What the checks found of an answer: its share of the criterion, tests, and what it put out."""

    share: float | None = None
    """Of the criterion's checks, from 0 to 1; nothing without checks."""
    passed: int = 0
    """Of the tests."""
    tests: int = 0
    output: str = ""
    """The beginning of its last output."""

    @property
    def right(self) -> bool | None:
        """Whether all checks are met; nothing where none was run."""
        return None if self.share is None else self.share >= 1


NOTHING_RUN = Outcome()


def outcome_of(evidence: CriterionEvidence | None, documents: Sequence[Document], answer: Answer) -> Outcome:
    """The outcome of an answer that stands in these documents."""
    tests = [test for found in (evidence.outcomes if evidence else ()) for test in found.tests]
    return Outcome(
        share=None if evidence is None or evidence.share is None else round(evidence.share, 4),
        passed=sum(test.passed for test in tests),
        tests=len(tests),
        output=_last_output(documents, answer),
    )


def _last_output(documents: Sequence[Document], answer: Answer) -> str:
    texts = [
        output.text.strip()
        for cell in _cells(documents, answer)
        for output in (cell.played or cell.outputs)
        if output.kind != "error"
    ]
    return next((text for text in reversed(texts) if text), "")[:MOST_OUTPUT]


def _cells(documents: Sequence[Document], answer: Answer) -> Iterator[Cell]:
    """The cells of notebooks in which an answer stands; of a script nobody knows which line put out what."""
    places = {(region.document, region.cell) for region in answer.regions if region.cell is not None}
    for document in documents:
        yield from (cell for cell in document.cells if (document.path, cell.number) in places)
