"""Pages of operators and administrators: health, machines, metrics, messages, webhooks, the audit log.

What staff of a course do with its submissions belongs to app.submissions and app.review.
"""

from __future__ import annotations

from app.operations import audit, views, webhooks
from app.operations.metrics import add_metrics

__all__ = ["add_metrics", "blueprints"]

blueprints = (audit.pages, views.pages, webhooks.deliveries, webhooks.secrets)
