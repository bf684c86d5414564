"""The answers of a prepared round, as the store keeps them for groups of answers and comparisons in pairs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from grading.domain.document import Document
from grading.domain.evidence import Evidence
from grading.domain.rubric import Rubric
from grading.similarity import Reader, answers_of, marks_of, outcome_of, packed
from grading.store.similarity.comparisons import WHOLE

MOST_FINGERPRINTS = 256
"""Kept of one answer: 2 KiB."""
MOST_OF_WHOLE = 2048
"""Kept of the whole work: 16 KiB."""


def answer_rows(
    documents: Sequence[Document], rubric: Rubric, tests: Iterable[str], evidence: Evidence
) -> list[dict[str, Any]]:
    """A row for each criterion and one for the whole work; the documents have the outputs of the run."""
    reader = Reader()
    found = answers_of(documents, rubric, tests, reader)
    marks = packed((mark.value for mark in marks_of(documents, reader)), MOST_OF_WHOLE)
    whole: dict[str, Any] = {
        "criterion": WHOLE,
        "key": "",
        "fingerprints": marks,
        "outcome": {},
        "regions": [],
    }
    return [
        whole,
        *(
            {
                "criterion": criterion,
                "key": answer.key,
                "fingerprints": packed(answer.fingerprints, MOST_FINGERPRINTS),
                "outcome": outcome_of(evidence.of(criterion), documents, answer).model_dump(mode="json"),
                "regions": [region.model_dump(mode="json") for region in answer.regions],
            }
            for criterion, answer in found.items()
        ),
    ]
