"""What API tokens use of the gateway, by day and model, and the limit a token has of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from grading.domain.token_use import Use, UseKey
from grading.store.database import insert_into, now
from grading.store.tables import GatewayUse, Token, User

MOST_NAME = 300
"""Letters of a model's name that are stored, as its column has them; machines may name longer ones."""


def add_use(session: Session, found: Mapping[UseKey, Use]) -> None:
    """Add to what is stored. What a token used that was erased meanwhile is dropped."""
    ids = {key.token_id for key in found}
    there = set(session.scalars(select(Token.id).where(Token.id.in_(ids)).with_for_update(key_share=True)))
    for key, use in sorted(found.items()):
        if key.token_id not in there:
            continue
        row = {"token_id": key.token_id, "day": key.day, "model": key.model[:MOST_NAME]}
        counts = {"requests": use.requests, "prompt_tokens": use.prompt, "output_tokens": use.output}
        more = {name: getattr(GatewayUse, name) + count for name, count in counts.items()}
        new = insert_into(session, GatewayUse).values(**row, **counts)
        session.execute(new.on_conflict_do_update(index_elements=list(row), set_=more))


def tokens_of_day(session: Session, token_id: int, day: date) -> int:
    """Prompt and output tokens of an API token on a day."""
    total = func.coalesce(func.sum(GatewayUse.prompt_tokens + GatewayUse.output_tokens), 0)
    query = select(total).where(GatewayUse.token_id == token_id, GatewayUse.day == day)
    return int(session.execute(query).scalar_one())


def own_limit(session: Session, token_id: int) -> int | None:
    """The tokens a day that an API token has of its own; 0 for any number, None for the default."""
    return session.execute(select(Token.daily_tokens).where(Token.id == token_id)).scalar_one()


MOST_LINES = 200
"""Lines of a page, those with the most tokens."""


@dataclass(frozen=True)
class TokenLine:
    """What an API token used of a model."""

    token_id: int
    token: str
    owner_id: int
    owner: str
    limit: int | None
    """Tokens a day of its own; None: the default."""
    model: str
    requests: int
    prompt: int
    output: int


@dataclass(frozen=True)
class DayUse:
    """What was used on a day."""

    day: date
    requests: int
    prompt: int
    output: int


@dataclass(frozen=True)
class UsePage:
    """By API token and model, the most used first, and by day, the newest first."""

    lines: tuple[TokenLine, ...]
    days: tuple[DayUse, ...]


def list_use(session: Session, days: int, user_id: int | None = None) -> UsePage:
    """What the API tokens of a user, or of all, used in the last `days`, today included."""
    use = GatewayUse
    since = use.day > now(session).date() - timedelta(days=days)
    whose = (Token.user_id == user_id,) if user_id is not None else ()
    sums = (func.sum(use.requests), func.sum(use.prompt_tokens), func.sum(use.output_tokens))
    who = (Token.id, Token.name, Token.user_id, User.name, Token.daily_tokens, use.model)
    by_token = (
        select(*who, *sums)
        .join(Token, Token.id == use.token_id)
        .join(User, User.id == Token.user_id)
        .where(since, *whose)
        .group_by(*who)
        .order_by((sums[1] + sums[2]).desc(), Token.id, use.model)
        .limit(MOST_LINES)
    )
    by_day = select(use.day, *sums).join(Token, Token.id == use.token_id).where(since, *whose)
    rows = session.execute(by_day.group_by(use.day).order_by(use.day.desc()))
    return UsePage(
        tuple(TokenLine(*row[:6], *map(int, row[6:])) for row in session.execute(by_token)),
        tuple(DayUse(row[0], *map(int, row[1:])) for row in rows),
    )


def use_of_today(session: Session) -> dict[tuple[str, str], int]:
    """(model, kind) -> tokens of all API tokens today, in UTC."""
    use = GatewayUse
    sums = (func.sum(use.prompt_tokens), func.sum(use.output_tokens))
    query = select(use.model, *sums).where(use.day == now(session).date()).group_by(use.model)
    return {
        (row[0], kind): int(count)
        for row in session.execute(query)
        for kind, count in (("prompt", row[1]), ("output", row[2]))
    }
