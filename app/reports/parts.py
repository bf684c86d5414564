"""The parts of a result's page that no click changes: feedback, criteria, what was handed in, and its origin.

They are kept as HTML under the content of all they are made of, so that a second look costs little and is
never out of date. Who may see what was decided before: the report is that of this reader.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import cast

from flask import current_app, render_template, request
from flask.sansio.app import App
from markupsafe import Markup

from app.reports import flags, points, rendering
from app.web.i18n import current
from grading.domain.model import Location
from grading.domain.outcome import Report
from grading.shared.cache import Remembered, mark
from grading.store.views.grade_history import ScoreTerms
from grading.store.views.submission import SubmissionView, SubmittedWork

MOST_KEPT = 32 * 1024 * 1024
"""Characters of all results together."""
AT_ONCE = 8
"""Pictures of a page that are fetched with it; of more, each when it comes into sight."""
Pictures = Mapping[tuple[str, int], Sequence[int]]
"""(document, cell) -> the numbers of its pictures that can be shown."""


@dataclass(frozen=True)
class Given:
    """All that the parts are made of."""

    view: SubmissionView
    report: Report | None
    """As this reader may see it."""
    handed_in: SubmittedWork
    terms: ScoreTerms
    written: Mapping[str, datetime]
    prompts: Mapping[str, str]
    """Stage -> the run whose prompt this reader may look at."""
    pictures: Pictures
    staff: bool
    own: bool

    @property
    def key(self) -> str:
        """Equal where all of it is, for readers of one language."""
        seen = self.view.grade.mark if self.report is not None and self.view.grade is not None else ""
        return mark(
            current(),
            request.root_path,
            self.view.id,
            self.report is not None,
            seen,
            self.handed_in.mark,
            sorted(self.terms.levels.items()),
            sorted(self.written.items()),
            sorted(self.prompts.items()),
            sorted((place, list(some)) for place, some in self.pictures.items()),
            self.staff,
            self.own,
        )


@dataclass(frozen=True)
class Parts:
    """HTML, and where the page has what quotes and checks point to."""

    feedback: Markup
    criteria: Markup
    documents: Markup
    origin: Markup
    places: Mapping[Location, str]

    @property
    def size(self) -> int:
        """Characters of all of it."""
        return sum(map(len, (self.feedback, self.criteria, self.documents, self.origin)))


def remember(app: App) -> None:
    """Keep parts with this app."""
    kept: Remembered[Parts] = Remembered(MOST_KEPT)
    app.extensions["grader-result-parts"] = kept


def parts(given: Given) -> Parts:
    """Those of a result, made unless they are known."""
    kept = cast("Remembered[Parts]", current_app.extensions["grader-result-parts"])
    key = given.key
    found = kept.find(key)
    if found is None:
        room = rendering.Room()
        found = _made(given, room)
        if room.coloured():  # else it may lack colours
            kept.put(key, found.size, found)
    return found


def _made(given: Given, room: rendering.Room) -> Parts:
    view, report, handed_in = given.view, given.report, given.handed_in
    original = view.grade.original if view.grade is not None else None
    shown = rendering.hand_in(
        handed_in.documents,
        report,
        original,
        trial=handed_in.trial,
        staff=given.staff,
        pictures=given.pictures,
        room=room,
    )

    def part(name: str) -> Markup:
        html = render_template(
            "results/_part.html",
            part=f"results/_{name}.html",
            view=view,
            report=report,
            shown=shown,
            notes=handed_in.notes,
            staff=given.staff,
            own=given.own,
            terms=given.terms,
            many_pictures=sum(map(len, given.pictures.values())) > AT_ONCE,
            written=given.written,
            prompts=given.prompts,
            level_words=points.level_words,
            place_words=flags.place_words,
        )
        return Markup(html)  # noqa: S704 - of templates that escape

    return Parts(
        feedback=part("feedback") if report else Markup(""),
        criteria=part("criteria") if report else Markup(""),
        documents=part("documents"),
        origin=part("origin") if report else Markup(""),
        places=shown.places,
    )
