"""What templates say of a report; the blueprint has no routes."""

from __future__ import annotations

from flask import Blueprint
from flask.blueprints import BlueprintSetupState

from app.reports import adjustments, comments, executions, flags, provenance
from app.reports.points import level_said

helpers = Blueprint("reports", __name__)


@helpers.record
def _add(state: BlueprintSetupState) -> None:
    state.app.jinja_env.filters.update(finding=comments.finding, suggestion=comments.suggestion)
    state.app.jinja_env.globals.update(
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
