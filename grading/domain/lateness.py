"""When a submission is late, and the part of its points it keeps."""

from __future__ import annotations

import json
import math
from datetime import datetime, timedelta
from functools import lru_cache

from pydantic import Field

from grading.domain.base_value import Value
from grading.domain.messages import Message, define_message

DAY = timedelta(days=1)
LONGEST = 366
"""Days that are looked at for what is lost; no rule takes more away after these."""
PERCENT = define_message("late.percent", "%(number)s %%")
COST_PER_DAY = define_message(
    "late.cost_per_day", "Late penalty after that: %(part)s of the points per day or part of a day."
)
KEPT_AT_LEAST = define_message(
    "late.kept_at_least", "Late submissions earn at least %(part)s of their points."
)


class LateRule(Value):
    """What being late costs. The default costs nothing."""

    grace_minutes: int = Field(
        default=0,
        ge=0,
        le=1440,
        description="grace period: minutes after the due date that still count as on time",
    )
    per_day: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="late penalty: part of the points deducted per day or part of a day",
    )
    at_least: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="minimum credit: part of the points that a late submission earns at least",
    )
    days: int | None = Field(
        default=None,
        ge=0,
        le=365,
        description="days after the due date during which late submissions are accepted; `null`: no limit",
    )

    def penalty(self) -> tuple[Message, ...]:
        """What students read of the points that being late costs; nothing where it costs none."""
        if not self.per_day:
            return ()
        cost = COST_PER_DAY(part=_percent(self.per_day))
        return (cost, KEPT_AT_LEAST(part=_percent(self.at_least))) if self.at_least else (cost,)


def _percent(part: float) -> Message:
    return PERCENT(number=round(100 * part, 1))


class Lateness(Value):
    """How late a submission is and what that leaves of its points."""

    days: int = 0
    """Days begun after the due date; 0 in time."""
    credit: float = 1.0
    """Part of the points that is kept."""
    closed: bool = False
    """Too late to be accepted."""


IN_TIME = Lateness()


@lru_cache(maxsize=1024)
def rule_of(stored: str | None) -> LateRule:
    """The rule that is kept as this JSON; nothing: what costs nothing."""
    return LateRule.model_validate(json.loads(stored or "{}") or {})


def lateness(submitted_at: datetime, due: datetime | None, rule: LateRule) -> Lateness:
    """Of a submission at that moment; `due` is the student's own date, with an extension."""
    if due is None or submitted_at <= in_time_until(due, rule):
        return IN_TIME
    days = math.ceil((submitted_at - due) / DAY)
    credit = max(rule.at_least, 1 - rule.per_day * days, 0.0)
    return Lateness(days=days, credit=round(credit, 6), closed=rule.days is not None and days > rule.days)


def in_time_until(due: datetime, rule: LateRule) -> datetime:
    """The last moment that is in time."""
    return due + timedelta(minutes=rule.grace_minutes)


def own_due(due: datetime | None, own: datetime | None) -> datetime | None:
    """The date of a student with an extension until `own`: never earlier than the one that holds for all."""
    return due if due is None or own is None else max(due, own)


def closes(due: datetime | None, rule: LateRule) -> datetime | None:
    """The last moment at which something is accepted; nothing where the door stays open."""
    if due is None or rule.days is None:
        return None
    return max(in_time_until(due, rule), due + rule.days * DAY)


def steps(due: datetime, rule: LateRule, at_most: int = 7) -> list[tuple[datetime, float]]:
    """Until when what part of the points is kept, the first one in time; those that are alike are one.

    The last one ends when the door closes; where it stays open, it ends when nothing more is lost.
    """
    found = [(in_time_until(due, rule), 1.0)]
    last, least = closes(due, rule), lateness(due + LONGEST * DAY, due, rule).credit
    if least == 1:
        return found
    for day in range(1, LONGEST):
        end = due + day * DAY
        if end <= found[-1][0]:
            continue
        if last is not None and end > last:
            break
        credit = lateness(end, due, rule).credit
        found = [*found[:-1], (end, credit)] if credit == found[-1][1] else [*found, (end, credit)]
        if len(found) > at_most or (last is None and credit == least):
            break
    return found[:at_most]
