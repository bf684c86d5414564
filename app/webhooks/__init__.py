"""Webhooks that learning systems send.

Webhooks that Grader sends belong to workers.server.delivery, their page to app.operations.
"""

from __future__ import annotations

from app.webhooks import views

blueprints = (views.endpoints,)
