"""Import of rubric files of the older autograder: criteria, checks, and a list of what is left out.

Reading today's format belongs to grading.assignments.loader.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from grading.assignments.legacy_import.contradictions import contradictions
from grading.assignments.legacy_import.criteria import Draft, add_section
from grading.assignments.legacy_import.deductions import add_adjustments, bonus_of
from grading.assignments.legacy_import.json_reader import untaken
from grading.assignments.legacy_import.solution_and_starter import Works
from grading.assignments.legacy_import.source import OTHERS, Section, parse
from grading.checks.message_parts import listed
from grading.domain.errors import AssignmentError
from grading.domain.messages import define_message
from grading.domain.rubric import Rubric

RUBRIC_UNUSABLE = define_message("legacy_rubric.rubric_unusable", "the rubric cannot be used: %(why)s")

__all__ = ["Works", "is_legacy", "read_legacy_rubric"]


def is_legacy(data: object) -> bool:
    """Whether a JSON value is a rubric of that kind."""
    return (
        isinstance(data, Mapping)
        and "criteria" not in data
        and bool({"rubric_elements", *OTHERS} & data.keys())
    )


def read_legacy_rubric(
    source: bytes | str | Mapping[str, Any], works: Works | None = None
) -> tuple[Rubric, tuple[str, ...]]:
    """The rubric, and a plain sentence for each contradiction in the file and each value that is not in it.

    Section maxima win; what is below them is scaled. With the assignment's `works` results are compared with
    the solution's, and a check that the solution does not meet is left out. Raises AssignmentError that names
    the key.
    """
    legacy = parse(source)
    draft = Draft(legacy, works or Works(), contradictions(legacy))
    for section in legacy.sections:
        add_section(draft, section)
    adjustments = add_adjustments(draft)
    bonus = Section("bonus", "Bonus", 0.0, None)
    draft.add(bonus, bonus_of(draft, legacy.bonus))
    checks = [c for one in draft.criteria for c in one.checks] + [
        c for one in adjustments for c in one.unless
    ]
    try:
        rubric = Rubric(
            criteria=tuple(draft.criteria), equivalents=draft.equivalents(checks), adjustments=adjustments
        )
    except ValidationError as error:
        raise AssignmentError(RUBRIC_UNUSABLE(why=error.errors()[0]["msg"])) from error
    notes = [*draft.notes, *_about_works(draft), *untaken(legacy.left)]
    return rubric, tuple(dict.fromkeys(notes))


def _about_works(draft: Draft) -> list[str]:
    """What the instructor should add so that results can be compared."""
    works, found = draft.works, []
    if not works.solution:
        found.append(
            "There is no solution, so search strings alone decide and no result is compared; add one."
        )
    if draft.unanswered:
        found.append(
            f"The solution has no code of its own for {listed(draft.unanswered, 100)}: no check was made and "
            "the model alone judges. Complete the solution and import again."
        )
    if draft.unfound:
        found.append(
            f"No place was found for {listed(draft.unfound, 100)}: write `where` to these criteria, and "
            "adjustments with `words`."
        )
    if works.lacking:
        found.append(
            f"The solution reads {listed(works.lacking, 100)}, which data/ does not hold: the work cannot be "
            "run here, and the outputs that students submit are compared. Add the files."
        )
    return found
