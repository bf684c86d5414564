"""What API tokens used of the models by the gateway: one's own, and all for administrators."""

from __future__ import annotations

import math

from babel.dates import format_date
from flask import Blueprint, render_template

from app.web import auth, charts
from app.web.charts import Mark, Plot, Series
from app.web.i18n import current, whole
from app.web.i18n import gettext as _
from app.web.services import services
from grading.store.accounts import gateway_use
from grading.store.accounts.gateway_use import DayUse, UsePage

pages = Blueprint("token_use", __name__)
SHOWN_DAYS = 30
"""Days of the tables and the plot, with today."""


@pages.get("/tokens/use")
def own() -> str:
    """What one's own tokens used."""
    actor = auth.actor()
    auth.require(actor, "tokens.own")
    with services().store.read_autocommit() as session:
        found = gateway_use.list_use(session, SHOWN_DAYS, actor.user_id)
    return _page(found, everybody=False)


@pages.get("/operations/token-use")
def everybody() -> str:
    """What the tokens of all people used."""
    auth.require(auth.actor(), "administer")
    with services().store.read_autocommit() as session:
        found = gateway_use.list_use(session, SHOWN_DAYS)
    return _page(found, everybody=True)


def _page(found: UsePage, *, everybody: bool) -> str:
    return render_template(
        "operations/token_use.html", use=found, everybody=everybody, plot_of=by_day(found.days),
        days=SHOWN_DAYS, default_limit=services().config.gateway.daily_tokens, **charts.DRAWING,
    )  # fmt: skip


def by_day(days: tuple[DayUse, ...]) -> Plot:
    """Tokens of each day that has any, the newest first."""
    most = max((one.prompt + one.output for one in days), default=0)
    end, marks = _end(most), []
    for one in days:
        tokens, label = one.prompt + one.output, format_date(one.day, "medium", locale=current())
        tip = _("%(day)s: %(tokens)s tokens in %(requests)s requests",
                day=label, tokens=whole(tokens), requests=whole(one.requests))  # fmt: skip
        marks.append(Mark(label, tip, float(tokens), note=whole(tokens)))
    return Plot(
        name="token-use",
        title=_("Tokens by day"),
        description=_("At most %(most)s tokens on one day.", most=whole(most)) if most else "",
        head=(_("Day (UTC)"), _("Requests to models"), _("Prompt tokens"), _("Output tokens")),
        rows=tuple((f"{one.day}", one.requests, one.prompt, one.output) for one in days),
        series=(Series("", tuple(marks)),) if most else (),
        end=end,
        ticks=tuple((end * part / 5, whole(end * part / 5)) for part in range(6)),
        axis=_("Tokens"),
    )


def _end(most: int) -> float:
    """Where a scale ends whose fifths are round numbers."""
    size = 10.0 ** math.floor(math.log10(max(most, 5)))
    return size * next(step for step in (1, 1.5, 2, 3, 4, 5, 7.5, 10) if most <= step * size)
