"""What API tokens use of the gateway, by day and model, and the limit a token has of its own."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.orm import Session

from grading.broker.token_use import Use, UseKey
from grading.store.tables import GatewayUse, Token


def add_use(session: Session, found: Mapping[UseKey, Use]) -> None:
    """Add to what is stored. What a token used that was erased meanwhile is dropped."""
    ids = {key.token_id for key in found}
    there = set(session.scalars(select(Token.id).where(Token.id.in_(ids)).with_for_update(key_share=True)))
    insert = sqlite_insert if session.get_bind().dialect.name == "sqlite" else postgresql_insert
    for key, use in sorted(found.items()):
        if key.token_id not in there:
            continue
        row = {"token_id": key.token_id, "day": key.day, "model": key.model}
        counts = {"requests": use.requests, "prompt_tokens": use.prompt, "output_tokens": use.output}
        more = {name: getattr(GatewayUse, name) + count for name, count in counts.items()}
        new = insert(GatewayUse).values(**row, **counts)
        session.execute(new.on_conflict_do_update(index_elements=list(row), set_=more))


def tokens_of_day(session: Session, token_id: int, day: date) -> int:
    """Prompt and output tokens of an API token on a day."""
    total = func.coalesce(func.sum(GatewayUse.prompt_tokens + GatewayUse.output_tokens), 0)
    query = select(total).where(GatewayUse.token_id == token_id, GatewayUse.day == day)
    return int(session.execute(query).scalar_one())


def own_limit(session: Session, token_id: int) -> int | None:
    """The tokens a day that an API token has of its own; 0 for any number, None for the default."""
    return session.execute(select(Token.daily_tokens).where(Token.id == token_id)).scalar_one()
