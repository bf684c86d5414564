"""What a guarantee says, in one sentence: on its page, in the audit, in exports, by the API."""

from __future__ import annotations

from grading.domain.messages import Message, define_message
from grading.store.trust.release_samples import Wanted

BOUNDS = {
    0: define_message(
        "guarantee.bound_0",
        "With %(confidence)s %% confidence, at most %(share)s %% of the released levels of each criterion "
        "differ from those that staff would give.",
    ),
    1: define_message(
        "guarantee.bound_1",
        "With %(confidence)s %% confidence, at most %(share)s %% of the released levels of each criterion "
        "are more than one level from those that staff would give, or more than half of a short scale.",
    ),
    2: define_message(
        "guarantee.bound_2",
        "With %(confidence)s %% confidence, at most %(share)s %% of the released levels of each criterion "
        "are more than two levels from those that staff would give, or more than half of a short scale.",
    ),
}
"""By how many levels one may be off, where the share is of each criterion."""
POOLED = {
    0: define_message(
        "guarantee.pooled_0",
        "With %(confidence)s %% confidence, at most %(share)s %% of the released levels, of all criteria "
        "together, differ from those that staff would give.",
    ),
    1: define_message(
        "guarantee.pooled_1",
        "With %(confidence)s %% confidence, at most %(share)s %% of the released levels, of all criteria "
        "together, are more than one level from those that staff would give, or more than half of a "
        "short scale.",
    ),
    2: define_message(
        "guarantee.pooled_2",
        "With %(confidence)s %% confidence, at most %(share)s %% of the released levels, of all criteria "
        "together, are more than two levels from those that staff would give, or more than half of a "
        "short scale.",
    ),
}
"""The same where the share is of all criteria together."""
GROUNDS = define_message(
    "guarantee.grounds",
    "Proven for %(proven)s submissions by a random sample that staff marked blind: %(marks)s submissions, "
    "threshold %(threshold)s.",
)
LEVELS_GROUNDS = define_message(
    "guarantee.levels_grounds",
    "Proven for %(proven)s submissions by a random sample that staff marked blind: %(marks)s single levels, "
    "threshold %(threshold)s.",
)


def bound(wanted: Wanted) -> Message:
    """What a guarantee promises of the levels that it is about."""
    share, confidence = f"{100 * wanted.share:g}", f"{100 * wanted.confidence:g}"
    bounds = POOLED if wanted.together else BOUNDS
    return bounds[wanted.tolerance](share=share, confidence=confidence)


def grounds(wanted: Wanted, proven: int, marks: int, threshold: float) -> Message:
    """What a guarantee rests on."""
    said = LEVELS_GROUNDS if wanted.together else GROUNDS
    return said(proven=proven, marks=marks, threshold=f"{threshold:.2f}")


def statement(wanted: Wanted, proven: int, marks: int, threshold: float) -> str:
    """Both in English, as records have it."""
    return f"{bound(wanted).message} {grounds(wanted, proven, marks, threshold).message}"
