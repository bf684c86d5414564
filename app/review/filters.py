"""The filter of the review list as it stands in an address, so that going back and sharing work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any

from pydantic import ValidationError

from app.web.i18n import gettext as _
from app.web.services import services
from grading.store.views.review_worklist import Filters

NAMES: Mapping[str, str] = {
    # name in the address -> field of the filter
    "all": "everything",
    "q": "q",
    "look": "look",
    "released": "released",
    "state": "state",
    "low": "low",
    "high": "high",
    "criterion": "criterion",
    "clow": "criterion_low",
    "chigh": "criterion_high",
    "machine": "machine",
    "model": "model",
    "late": "late",
    "sort": "sort",
}
POINTS = ("low", "high", "clow", "chigh")
SWITCHES = ("all", "late")


def filters_of(args: Mapping[str, str]) -> Filters:
    """The filter of an address. What makes no sense is left out."""
    found: dict[str, Any] = {}
    for name, field in NAMES.items():
        text = args.get(name, "").replace("\0", "").strip()
        if not text:
            continue
        value: Any = text
        if name in SWITCHES:
            value = True
        elif name in POINTS:
            value = number(text)
        try:
            Filters.model_validate({field: value})
        except ValidationError:
            continue
        found[field] = value
    return Filters.model_validate(found)


def number(text: str) -> float | None:
    """A number as people write it, with a point or a comma; nothing for anything else."""
    try:
        value = float(text.strip().replace(",", "."))
    except ValueError:
        return None
    return value if isfinite(value) and abs(value) <= 1e6 else None


def page_of(args: Mapping[str, str]) -> int:
    """The page of an address, from 1."""
    text = args.get("page", "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else 1


def address_of(filters: Filters, page: int = 1) -> dict[str, Any]:
    """What stands in the address for a filter: only what differs from the defaults."""
    plain = Filters()
    found: dict[str, Any] = {}
    for name, field in NAMES.items():
        value = getattr(filters, field)
        if value != getattr(plain, field):
            found[name] = 1 if name in SWITCHES else f"{value:g}" if name in POINTS else value
    return found | ({"page": page} if page > 1 else {})


def machines() -> tuple[list[str], list[str]]:
    """Names of machines and of models, as config.toml has them: to list all that ever ran costs more."""
    known = services().config.machines
    models = {place.model for machine in known for place in machine.stages.values()}
    return [machine.name for machine in known], sorted(models)


def with_chosen(known: Iterable[str], chosen: str) -> list[str]:
    """Also what is chosen, though it is not configured any more."""
    return sorted({*known, chosen} - {""})


def looks() -> list[tuple[str, str]]:
    """What one may look for."""
    return [
        ("", _("everything")),
        ("held", _("held for a person")),
        ("flagged", _("flagged")),
        ("unreviewed", _("not reviewed")),
        ("reviewed", _("reviewed")),
        ("changed", _("changed by a person")),
        ("regrade", _("regrade asked")),
    ]


def sorts() -> list[tuple[str, str]]:
    """The orders there are."""
    return [
        ("name", _("name, A to Z")),
        ("-name", _("name, Z to A")),
        ("todo", _("what waits for you first")),
        ("points", _("lowest points first")),
        ("-points", _("highest points first")),
        ("criterion", _("lowest in the criterion first")),
        ("new", _("newest first")),
        ("old", _("oldest first")),
    ]
