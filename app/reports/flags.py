"""Flags of a report in words for its page: what was seen, where, and for staff what to do about it."""

from __future__ import annotations

from dataclasses import dataclass

from app.reports.executions import RUN_NOTES
from app.web.i18n import gettext as _
from app.web.i18n import later as N_
from app.web.i18n import render_message
from app.web.markdown import one_line, visible
from grading.domain.document import Location
from grading.domain.evidence import Flag
from grading.domain.report import Report

MANIPULATION = "manipulation"
ADVICE = {
    MANIPULATION: N_(
        "Check the places listed here, and the levels and reasons below, before you release the grade."
    ),
    "answer_shortened": N_("If this happens often, raise max_output_tokens of the stage in config.toml."),
    "shortened": N_("Review the parts that the model did not see. A higher context_tokens lets it see more."),
    "other_weights": N_("The Machines page shows which machine differs and what to do. Then regrade."),
    "invisible_text": N_(
        "They may come from a copied page. Use an editor that shows such characters to check."
    ),
}
"""Code of a flag -> what staff can do."""


@dataclass(frozen=True)
class Part:
    """One of several things that a note sums up, with its place in the submission."""

    words: str
    location: Location | None = None


@dataclass(frozen=True)
class FlagNote:
    """One note; `parts` are what it sums up, `hold` says that it keeps the grade back."""

    words: str
    parts: tuple[Part, ...] = ()
    advice: str = ""
    hold: bool = False


def flag_notes(report: Report, staff: bool) -> tuple[FlagNote, ...]:
    """The flags that are no notes on the run. All signs of manipulation are one note, where the first stands.

    Students get no advice.
    """
    flags = [flag for flag in report.flags if flag.code not in RUN_NOTES]
    signs = [flag for flag in flags if flag.code == MANIPULATION]
    notes: list[FlagNote] = []
    for flag in flags:
        if flag.code != MANIPULATION:
            notes.append(
                FlagNote(
                    visible(render_message(flag.coded)), (), _advice(flag.code, staff), flag.hold and staff
                )
            )
        elif flag is signs[0]:
            words = _(
                "The submission contains text that may try to influence the model. No points were "
                "deducted for that."
            )
            parts = tuple(_placed(sign) for sign in signs)
            notes.append(FlagNote(words, parts, _advice(flag.code, staff), flag.hold and staff))
    return tuple(notes)


def _advice(code: str, staff: bool) -> str:
    return _(ADVICE.get(code, "")) if staff else ""


def _placed(flag: Flag) -> Part:
    words = visible(render_message(flag.coded))
    return Part(words if flag.location is None else f"{place_words(flag.location)}: {words}", flag.location)


def place_words(place: Location) -> str:
    """Lines of notebooks count in their cell, those of other files in the file."""
    cell = (
        [_("cell %(number)s", number=place.cell)]
        if place.cell is not None and place.document.endswith(".ipynb")
        else []
    )
    line = [_("line %(number)s", number=place.line)] if place.line is not None else []
    return ", ".join([one_line(place.document), *cell, *line])
