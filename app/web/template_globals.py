"""What the templates of every package may say and ask."""

from __future__ import annotations

from flask import Flask

from app.web import auth, markdown, tabs, template_helpers
from app.web.check_messages import said
from app.web.dates import relative


def install(app: Flask) -> None:
    """Add it to the app's templates; packages add what only their own templates need by their blueprints."""
    template_helpers.quicken(app)
    app.context_processor(auth.context)
    app.jinja_env.filters.update(markdown=markdown.markdown, seen=markdown.seen)
    app.jinja_env.globals.update(
        can=auth.can,
        in_words=said,
        course_tabs=tabs.course_tabs,
        assignment_tabs=tabs.assignment_tabs,
        exists=app.view_functions.__contains__,
        relative=relative,
    )
