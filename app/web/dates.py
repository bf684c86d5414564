"""Moments in words: how far off they are, and what somebody typed as a date in their time zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from app.web.i18n import gettext as _
from app.web.i18n import ngettext
from grading.domain.errors import GraderError
from grading.domain.messages import define_message

UNITS = ((86400, "%(count)s day", "%(count)s days"), (3600, "%(count)s hour", "%(count)s hours"))


class BadDate(GraderError):
    """Invalid date or time. Choose a day, a time, and a time zone from the list."""

    code = "date_invalid"
    status = 422
    default_message = define_message(
        "error.bad_date",
        "Invalid date or time. Choose a day, a time, and a time zone from the list.",
    )


def relative(moment: datetime, now: datetime) -> str:
    """`in 2 days`, `3 hours ago`; pages with scripts say it in the reader's own calendar days."""
    seconds = (moment - now).total_seconds()
    size = abs(seconds)
    if size < 60:
        return _("now")
    for unit, one, many in UNITS:
        if size >= 2 * unit or (unit == 3600 and size >= unit):
            length = ngettext(one, many, int(size // unit))
            break
    else:
        length = ngettext("%(count)s minute", "%(count)s minutes", int(size // 60))
    return _("in %(length)s", length=length) if seconds > 0 else _("%(length)s ago", length=length)


def spoken(moment: datetime, zone: str) -> str:
    """A moment in a zone, with its name: `24 Nov 2026, 23:59 (Europe/Berlin)`."""
    return f"{moment.astimezone(ZoneInfo(zone)):%d %b %Y, %H:%M} ({zone})"


def typed(text: str, zone: str) -> datetime:
    """What somebody typed as local date and time in a zone, in UTC. Raises BadDate."""
    if zone not in zones():
        raise BadDate(_("Choose a time zone from the list, such as Europe/Berlin or UTC."))
    try:
        local = datetime.fromisoformat(text.strip())
        moment = local.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise BadDate from None
    if local.tzinfo is not None:
        raise BadDate
    return near(moment)


def near(moment: datetime) -> datetime:
    """The same, if it is of a time that assignments have. Raises BadDate."""
    if not timedelta(0) < moment - datetime(2000, 1, 1, tzinfo=UTC) < FAR:
        raise BadDate
    return moment


FAR = timedelta(days=365 * 100)


@lru_cache(maxsize=1)
def zones() -> tuple[str, ...]:
    """The names of all time zones."""
    return tuple(sorted(available_timezones() | {"UTC"}))
