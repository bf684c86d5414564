"""The first page of each role."""

from __future__ import annotations

from app.home import views

blueprints = (views.pages,)
