"""The gradebook and its files."""

from __future__ import annotations

from app.gradebook import csv_import, exports, views

blueprints = (csv_import.pages, exports.pages, views.pages)
