"""The answers of a prepared round to its criteria, as the store keeps them for groups of answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from grading.domain.document import Document
from grading.domain.evidence import Evidence
from grading.domain.rubric import Rubric
from grading.similarity import answers_of, outcome_of, packed

MOST_FINGERPRINTS = 256
"""Kept of one answer: 2 KiB."""


def answer_rows(
    documents: Sequence[Document], rubric: Rubric, tests: Iterable[str], evidence: Evidence
) -> list[dict[str, Any]]:
    """A row for each criterion; the documents have the outputs of the run."""
    found = answers_of(documents, rubric, tests)
    return [
        {
            "criterion": criterion,
            "key": answer.key,
            "fingerprints": packed(answer.fingerprints, MOST_FINGERPRINTS),
            "outcome": outcome_of(evidence.of(criterion), documents, answer).model_dump(mode="json"),
            "regions": [region.model_dump(mode="json") for region in answer.regions],
        }
        for criterion, answer in found.items()
    ]
