"""Pages of a course: its settings, roster, groups and extensions."""

from __future__ import annotations

from app.courses import extensions, groups, roster, views

blueprints = (extensions.pages, groups.pages, roster.pages, views.pages)
