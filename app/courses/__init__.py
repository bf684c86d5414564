"""Pages of a course: assignments, settings, roster, groups, extensions, links to learning platforms.

What a page shows of one kind of platform belongs to that platform's package, grades belong to app.gradebook.
"""

from __future__ import annotations

from app.courses import extensions, groups, roster, views

blueprints = (extensions.pages, groups.pages, roster.pages, views.pages)
