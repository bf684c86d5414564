"""Pages of a course: its settings, roster, groups and extensions."""

from __future__ import annotations

from app.courses import extensions, groups, platforms, roster, views

blueprints = (extensions.pages, groups.pages, platforms.pages, roster.pages, views.pages)
