"""The result of a submission as a page, as images and as a PDF."""

from __future__ import annotations

from app.results import views

blueprints = (views.pages,)
