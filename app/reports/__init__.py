"""How a report reads on pages: lines with comments, points, flags, pictures, results of runs.

No routes; what routes show of it belongs to results, review and submissions.
"""

from __future__ import annotations

from app.reports import template_helpers

blueprints = (template_helpers.helpers,)
