"""Pages on which staff review, change, release and regrade.

What a report looks like on any page belongs to app.reports, what students see of it to app.results.
"""

from __future__ import annotations

from app.review import class_actions, regrade_requests, second_marking, views

blueprints = (class_actions.pages, regrade_requests.pages, second_marking.pages, views.pages)
