"""Pages of operators and administrators: health, machines, metrics, messages, webhooks, the audit log.

What staff of a course do with its submissions belongs to app.submissions and app.review.
"""

from __future__ import annotations

from app.operations import audit, token_use, views, webhooks
from app.operations.metrics import add_metrics
from app.web.i18n import later as N_
from app.web.menus import Menu, NavigationEntry

__all__ = ["add_metrics", "blueprints", "navigation"]

blueprints = (
    audit.pages,
    views.pages,
    token_use.pages,
    webhooks.receivers,
    webhooks.deliveries,
    webhooks.secrets,
)
navigation = (
    NavigationEntry(
        Menu.SITE, 60, "operations.overview", N_("Operations"), "machines.see",
        below=("operations",), leads_to=(Menu.OPERATIONS,),
    ),
    NavigationEntry(Menu.OPERATIONS, 10, "operations.overview", N_("Overview"), "machines.see"),
    NavigationEntry(Menu.OPERATIONS, 20, "operations.machines", N_("Machines"), "machines.see"),
    NavigationEntry(Menu.OPERATIONS, 40, "operations.messages", N_("Outbox"), "administer"),
    NavigationEntry(
        Menu.OPERATIONS, 50, "event_receivers.list_receivers", N_("Webhooks"), "administer",
        below=("event_receivers", "deliveries", "webhook_secrets"),
    ),
    NavigationEntry(Menu.OPERATIONS, 60, "operations.tokens", N_("API tokens"), "administer"),
    NavigationEntry(Menu.OPERATIONS, 70, "token_use.everybody", N_("Use of models"), "administer"),
    NavigationEntry(Menu.OPERATIONS, 80, "audit.everything", N_("Audit log"), "administer"),
    NavigationEntry(Menu.COURSE, 70, "audit.course", N_("Audit log"), "course.audit"),
)  # fmt: skip
