"""Pages on which work is submitted and its status is shown until it is graded.

The result belongs to app.results, the list of all submissions to app.home.
"""

from __future__ import annotations

from app.submissions import class_upload, code_editor, for_student, status_poll, views
from app.web.i18n import later as N_
from app.web.menus import Menu, NavigationEntry, PagesBelow

blueprints = (
    class_upload.pages, code_editor.pages, for_student.pages, status_poll.pages, views.pages,
)  # fmt: skip
navigation = (
    NavigationEntry(
        Menu.OPERATIONS, 30, "submissions.failed", N_("Failed grading"), "failed_submissions.see"
    ),
    PagesBelow(Menu.SITE, "operations.overview", ("submissions.retry_failed",)),
    PagesBelow(
        Menu.SITE,
        "courses.listing",
        (
            "class_upload", "code_editor", "for_student", "submissions.submission", "submissions.prompt",
            "submissions.receipt", "submissions.upload", "submissions.submit_form", "submissions.submit",
        ),
    ),
)  # fmt: skip
