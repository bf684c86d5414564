"""Pages of operators and administrators: health, machines, deliveries, metrics and the audit log."""

from __future__ import annotations

from app.operations import audit, deliveries, failed_submissions, views, webhook_secrets
from app.operations.metrics import add_metrics

__all__ = ["add_metrics", "blueprints"]

blueprints = (audit.pages, deliveries.pages, failed_submissions.pages, views.pages, webhook_secrets.pages)
