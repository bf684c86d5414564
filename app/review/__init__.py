"""Pages on which staff review, change, release and regrade.

What a report looks like on any page belongs to app.reports, what students see of it to app.results.
"""

from __future__ import annotations

from app.review import (
    answer_groups,
    class_actions,
    criterion,
    regrade_requests,
    rubric_items,
    sample_marking,
    second_marking,
    views,
)
from app.web.i18n import later as N_
from app.web.menus import Menu, NavigationEntry

blueprints = (
    answer_groups.pages,
    class_actions.pages,
    criterion.pages,
    regrade_requests.pages,
    rubric_items.pages,
    sample_marking.pages,
    second_marking.pages,
    views.pages,
)
navigation = (
    NavigationEntry(
        Menu.SITE, 40, "regrade_requests.listing", N_("Regrade requests"), "failed_submissions.see",
        below=("regrade_requests",),
    ),
    NavigationEntry(
        Menu.ASSIGNMENT, 20, "review.listing", N_("Review"), "score.see",
        below=("review", "class_actions", "criterion", "answer_groups", "rubric_items", "second_marking"),
    ),
)  # fmt: skip
