"""The examples of a round's jobs: corrections by people that an instructor chose."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from sqlalchemy.orm import Session

from grading.domain.rubric import Rubric
from grading.store.experiments.examples import MOST_CHARS, PER_CRITERION
from grading.store.rounds.example_usage import taught
from workers.server.rubric_cache import Version, Versions

Shown = Mapping[str, list[dict[str, Any]]]
"""Stage -> examples as JSON."""


def examples_for(
    session: Session, versions: Versions, version: Version, submission_id: str, student_id: int
) -> Shown:
    """What the models of this hand-in's stages are shown.

    Only for criteria that have the levels they had when the example was chosen, and within the bounds,
    whatever the table holds.
    """
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    criteria = {criterion.id: criterion for criterion in version.rubric.criteria}
    count: dict[str, int] = defaultdict(int)
    chars = 0
    for example, version_id in taught(session, version.assignment_id, submission_id, student_id):
        criterion = criteria.get(example.criterion)
        if criterion is None or version_id is None:
            continue
        then = _highest(versions.get(session, version_id).rubric, example.criterion)
        size = len(example.excerpt) + len(example.reason)
        if then != criterion.highest or count[criterion.id] >= PER_CRITERION or chars + size > MOST_CHARS:
            continue
        count[criterion.id] += 1
        chars += size
        found[criterion.stage].append(example.model_dump(mode="json"))
    return found


def _highest(rubric: Rubric, criterion: str) -> int | None:
    return next((one.highest for one in rubric.criteria if one.id == criterion), None)
