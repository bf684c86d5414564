"""Class statistics and their plots."""

from __future__ import annotations

from app.statistics import views

blueprints = (views.pages,)
