"""One criterion of one submission as its page shows it: levels, who graded it, the work at its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flask import render_template
from markupsafe import Markup
from sqlalchemy.orm import Session

from app.reports import annotated_submission, result
from app.reports.excerpts import excerpt
from app.reports.flags import place_words
from app.review.detail import ItemLine, Level, item_lines, standing
from app.web.services import services
from grading.documents import Identity, pseudonym_for, pseudonymise
from grading.documents.pseudonym import pseudonymise_value
from grading.domain.document import Document
from grading.domain.errors import NotFound
from grading.domain.jobs import Judgement
from grading.domain.permissions import Actor
from grading.domain.report import CriterionGrade, Report
from grading.domain.report_changes import GRADING
from grading.domain.rubric import Criterion, Rubric
from grading.execution.display import ShownExecution
from grading.scoring.changes import at_level
from grading.scoring.proposed_levels import judgement_of_model, level_of_checks
from grading.similarity import Region, regions_of
from grading.store.experiments.examples import student_identities
from grading.store.grades.change_history import Made, criterion_stamp
from grading.store.review import answer_groups, rubric_items, second_marking
from grading.store.review.edits import NO_SUCH_CRITERION
from grading.store.views.submission import SubmissionView, WholeSubmission


@dataclass(frozen=True)
class Switches:
    """What the address of a page asks to be hidden."""

    anonymous: bool = False
    """No names: pseudonyms instead."""
    blind: bool = False
    """No level of a model, until the reader has graded the criterion."""

    def address(self, **other: bool) -> dict[str, Any]:
        """As they stand in an address, with others instead."""
        both = {"anonymous": self.anonymous, "blind": self.blind, **other}
        return {name: 1 for name, on in both.items() if on}


def switches_of(args: Mapping[str, str]) -> Switches:
    """The switches of an address."""
    return Switches("anonymous" in args, "blind" in args)


@dataclass(frozen=True)
class CriterionPage:
    """What the page shows beside the work."""

    view: SubmissionView
    name: str
    """The student's name, or a pseudonym."""
    rubric: Rubric
    criterion: Criterion
    now: CriterionGrade
    levels: tuple[Level, ...]
    checks: float | None
    """The level of the checks alone."""
    model: Judgement | None
    hidden: bool
    """The model's level is hidden, with all that it led to."""
    grading: Made | None
    """The change by which a person graded it."""
    reason_change: Made | None
    stamp: str
    items: tuple[ItemLine, ...]

    @property
    def level(self) -> int | None:
        """The level it stands at, where it may be shown."""
        return None if self.hidden else standing(self.levels, self.now)

    @property
    def text(self) -> str:
        """What the student reads about the criterion, where it may be shown."""
        return "" if self.hidden and self.reason_change is None else self.now.reason


def load_page(
    session: Session, view: SubmissionView, criterion_id: str, switches: Switches, actor: Actor
) -> CriterionPage:
    """What the page shows. Raises NotFound where there is no grade, or no such criterion in it."""
    grade, rubric = view.grade, second_marking.rubric_of(session, view.round_id)
    criterion = next((one for one in rubric.criteria if one.id == criterion_id), None)
    now = (
        next((one for one in grade.report.criteria if one.criterion == criterion_id), None) if grade else None
    )
    if grade is None or now is None or criterion is None:
        raise NotFound(NO_SUCH_CRITERION)
    made = [one for one in grade.made if one.undone_at is None and one.target == criterion_id]
    hidden = switches.blind and not _has_graded(made, actor)
    page = CriterionPage(
        view=view,
        name=name_of(view.assignment_id, view.student_id, view.student, switches),
        rubric=rubric,
        criterion=criterion,
        now=now,
        levels=_levels(criterion, now),
        checks=level_of_checks(now),
        model=None if hidden else judgement_of_model(grade.original, now),
        hidden=hidden,
        grading=next((one for one in made if one.kind in GRADING), None),
        reason_change=next((one for one in made if one.kind == "reason"), None),
        stamp=criterion_stamp(session, view.round_id, criterion_id),
        items=item_lines(rubric_items.list_items(session, view.assignment_id, criterion_id), now),
    )
    return _without_names(session, page) if switches.anonymous else page


def _without_names(session: Session, page: CriterionPage) -> CriterionPage:
    """The page without the students' names in what checks, models and staff say about the criterion."""
    for identity in student_identities(session, page.view.id):
        page = replace(
            page,
            now=pseudonymise_value(page.now, identity),
            model=pseudonymise_value(page.model, identity),
            reason_change=pseudonymise_value(page.reason_change, identity),
        )
    return page


def name_of(assignment_id: int, student_id: int, student: str, switches: Switches) -> str:
    """A student's name, or where names are hidden a pseudonym that stays the same in the assignment."""
    if not switches.anonymous:
        return student
    return pseudonym_for(services().secret_key.encode(), f"{assignment_id}:{student_id}")


def rendered_work(
    session: Session,
    whole: WholeSubmission,
    page: CriterionPage,
    switches: Switches,
    *,
    every_line: bool = False,
) -> Markup:
    """The lines at the criterion's place, with their outputs.

    What evidence points to can be linked to; with `every_line` all lines.
    """
    parts = excerpt(whole.submitted.documents, _regions(session, whole.submitted.documents, page))
    pictures = result.image_numbers(session, page.view.id, parts)
    execution = whole.submitted.execution
    for identity in student_identities(session, page.view.id) if switches.anonymous else ():
        before, parts = parts, pseudonymise(parts, identity)
        paths = {old.path: new.path for old, new in zip(before, parts, strict=True)}
        pictures = {(paths[path], cell): numbers for (path, cell), numbers in pictures.items()}
        execution = execution and _execution_without_names(execution, identity, paths)
    shown = annotated_submission.render_submission(
        parts, _about(page), execution=execution, staff=True, pictures=pictures, every_line=every_line
    )
    html = render_template(
        "review/_criterion_work.html", view=page.view, page=page, shown=shown, place_words=place_words
    )
    return Markup(html)  # noqa: S704 - of a template that escapes


def _execution_without_names(
    execution: ShownExecution, identity: Identity, paths: Mapping[str, str]
) -> ShownExecution:
    ran = {
        paths[path]: pseudonymise_value(one, identity).model_copy(update={"path": paths[path]})
        for path, one in execution.documents.items()
        if path in paths
    }
    return execution.model_copy(update={"documents": ran})


def _has_graded(made: Sequence[Made], actor: Actor) -> bool:
    """Whether the actor made any of these changes that grade a criterion."""
    return any(one.kind in GRADING and one.author == actor.user_id for one in made)


def _levels(criterion: Criterion, now: CriterionGrade) -> tuple[Level, ...]:
    words = criterion.levels
    return tuple(
        Level(level, words[level] if level < len(words) else "", at_level(now, level))
        for level in range(now.highest + 1)
    )


def _about(page: CriterionPage) -> Report | None:
    """The report as far as it is about the criterion: what it quotes has its name in the page."""
    if page.view.grade is None:
        return None
    only = page.now.model_copy(update={"quotes": ()}) if page.hidden else page.now
    update = {"criteria": (only,), "adjustments": (), "flags": (), "analysis": None, "comments": ()}
    return page.view.grade.report.model_copy(update=update)


def _regions(session: Session, documents: Sequence[Document], page: CriterionPage) -> Sequence[Region]:
    """Where the answer stands: as found when the round was prepared, else as found now."""
    stored = answer_groups.load_regions(session, page.view.round_id, page.criterion.id)
    return stored or regions_of(documents, page.rubric, page.criterion)
