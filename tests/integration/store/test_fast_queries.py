"""Queries that pages ask again go to the driver, and what comes back is what SQLAlchemy makes of it.

`grading/store/looking.py` uses insides of SQLAlchemy: a version that changes them fails here, where pages
would only become slower.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import Select, bindparam, func, select
from sqlalchemy.exc import StatementError
from sqlalchemy.orm import Bundle

from grading.store import Store, looking, tables
from tests.support.services import PostgresDatabases

AT = datetime(2026, 11, 21, 12, 30, tzinfo=UTC)


@pytest.fixture
def store(postgres_databases: PostgresDatabases) -> Iterator[Store]:
    """Two users with roles in a course, and something said in the audit."""
    made = Store(postgres_databases.fresh())
    tables.Base.metadata.create_all(made.engine)
    with made.write() as session:
        course = tables.Course(slug="c", title="Course")
        users = [tables.User(name=name, email=f"{name}@school.example", created_at=AT) for name in ("A", "B")]
        session.add_all([course, *users])
        session.flush()
        session.add(tables.Membership(user_id=users[0].id, course_id=course.id, role="student"))
        session.add(tables.Audit(at=AT, actor="user:1", action="x", object="y", detail={"list": [1, None]}))
    yield made
    made.close()


@pytest.fixture
def driven(monkeypatch: pytest.MonkeyPatch) -> list[looking.Sent]:
    """What the driver sent."""
    sent: list[looking.Sent] = []
    rows = looking.Sent.rows

    def seen(self: looking.Sent, *given: Any) -> Any:
        sent.append(self)
        return rows(self, *given)

    monkeypatch.setattr(looking.Sent, "rows", seen)
    return sent


def people() -> Select[Any]:
    """Columns of several kinds: numbers, texts, moments, truth, nothing; a list and a value are given."""
    user, member = tables.User, tables.Membership
    query = select(
        user.id, user.name.label("called"), user.created_at, user.disabled, user.password_hash, member.role,
        func.coalesce(member.role, bindparam("none")).label("known"),
    )  # fmt: skip
    query = query.outerjoin(member, member.user_id == user.id)
    return query.where(user.name.in_(bindparam("names", expanding=True))).order_by(user.id)


def test_from_its_second_time_on_a_query_is_sent_by_the_driver(
    store: Store, driven: list[looking.Sent]
) -> None:
    query, heard = people(), []
    for names in (["A", "B"], ["A", "B"], ["B", "A"], ["A"]):
        with store.look() as session:
            found = session.execute(query, {"names": names, "none": "-"}).all()
        heard.append([tuple(row) for row in found])
        assert [row.called for row in found] == sorted(names)
        assert [row.known for row in found] == ["student", "-"][: len(names)]
        assert {row.created_at for row in found} == {AT}
        assert {row.created_at.tzinfo for row in found} == {UTC}
        assert [row._mapping["disabled"] for row in found] == [False] * len(names)
    with store.read() as session:
        by_sqlalchemy = [tuple(row) for row in session.execute(query, {"names": ["A", "B"], "none": "-"})]
    assert heard[:3] == [by_sqlalchemy] * 3
    assert heard[3] == by_sqlalchemy[:1]
    assert len(driven) == 3
    assert len(set(driven)) == 2, "one for each length of the list"


def test_data_and_single_values_are_alike(store: Store, driven: list[looking.Sent]) -> None:
    query = select(tables.Audit.detail, tables.Audit.at).where(tables.Audit.actor == bindparam("actor"))
    for _ in range(2):
        with store.look() as session:
            assert session.scalar(query, {"actor": "user:1"}) == {"list": [1, None]}
            assert session.execute(query, {"actor": "user:1"}).one().at == AT
            assert session.scalar(query, {"actor": "nobody"}) is None
    assert len(driven) == 5


def test_objects_are_for_sqlalchemy(store: Store, driven: list[looking.Sent]) -> None:
    whole = select(tables.User).order_by(tables.User.id)
    bundled = select(Bundle("who", tables.User.id, tables.User.name)).order_by(tables.User.id)
    for _ in range(3):
        with store.look() as session:
            assert [one.name for one in session.scalars(whole)] == ["A", "B"]
            assert [row.who.name for row in session.execute(bundled)] == ["A", "B"]
    assert driven == []


def test_what_is_wrong_is_said_by_sqlalchemy(store: Store) -> None:
    query = people()
    for _ in range(3):
        with store.look() as session:
            assert session.execute(query, {"names": ["A"], "none": ""}).one().called == "A"
    with store.look() as session, pytest.raises(StatementError, match="value is required"):
        session.execute(query, {"names": ["A"]})
    with store.look() as session:
        assert session.execute(query, {"names": [], "none": ""}).all() == []
