"""What templates say of a report; the blueprint has no routes."""

from __future__ import annotations

from flask import Blueprint
from flask.blueprints import BlueprintSetupState

from app.reports import adjustments, comments, executions, flags, provenance
from app.reports.points import level_said
from app.web.stage_titles import title_of
from grading.domain.outcome import Report
from grading.domain.stages import Written, written

helpers = Blueprint("reports", __name__)


@helpers.record
def _add(state: BlueprintSetupState) -> None:
    state.app.jinja_env.filters.update(finding=comments.finding, suggestion=comments.suggestion)
    state.app.jinja_env.globals.update(
        further_stages=further_stages,
        provenance_rows=provenance.report_rows,
        listed_tests=executions.listed_tests,
        said=executions.said,
        run_notes=executions.run_notes,
        level_said=level_said,
        flag_notes=flags.flag_notes,
        adjusted_lines=adjustments.lines,
        adjusted_sum=adjustments.summed,
        adjusted_offer=adjustments.offered_words,
    )


def further_stages(report: Report) -> list[tuple[str, Written]]:
    """Title in the reader's language and texts of what stages wrote that the report has no field for."""
    return [(title_of(one.stage), one) for one in written(report.outputs)]
