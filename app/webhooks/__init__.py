"""Webhooks that learning systems send."""

from __future__ import annotations

from app.webhooks import views

blueprints = (views.endpoints,)
