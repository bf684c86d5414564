"""How a report and the submission it is about are rendered: lines with comments, points, flags, images, runs.

Views do not belong here; app.results, app.review and app.submissions show what is rendered. Words that other
pages share belong to app.web.
"""

from __future__ import annotations

from app.reports import result

blueprints = (result.helpers,)
