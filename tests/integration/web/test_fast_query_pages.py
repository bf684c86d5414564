"""What the driver answers is what SQLAlchemy makes of it: every page, asked in both ways, on PostgreSQL."""

from __future__ import annotations

import re

from sqlalchemy import event

from app import Services, create_app
from bench.pages.school import Size, make
from bench.pages.things import more
from bench.pages.walk import ROLES, Walker
from grading.store import Store, tables
from tests.integration.webapp import FakeDispatch, configuration
from tests.support.services import PostgresDatabases

OF_A_REQUEST = re.compile(
    r'nonce="[^"]*"|name="(csrf_token|key|seed)" value="[^"]*"|[0-9.]+ ?(s|ms|minutes?|seconds?)\b'
)
"""What differs from one answer to the next."""


def test_pages_are_alike_whoever_sends_their_queries(postgres_databases: PostgresDatabases) -> None:
    store = Store(postgres_databases.fresh())
    tables.Base.metadata.create_all(store.engine)
    school = make(store, Size(students=5, assignments=2, submissions=40, audit=20))
    more(store, school, 10)
    app = create_app(Services(configuration(), store, FakeDispatch(), secret_key="only for tests"))
    walker = Walker(app, store, school)
    sent: list[str] = []

    def see(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        sent.append(statement)

    def page(role: str, url: str) -> tuple[int, str]:
        answer = walker.clients[role].get(url)
        return answer.status_code, OF_A_REQUEST.sub("", answer.get_data(as_text=True))

    compared = 0
    for _endpoint, url in walker.pages():
        for role in ROLES:
            for _ in range(2):  # from its second time on a query may be sent by the driver
                by_driver = page(role, url)
            event.listen(store.looking, "before_cursor_execute", see)  # heard of on SQLAlchemy's way only
            by_sqlalchemy = page(role, url)
            event.remove(store.looking, "before_cursor_execute", see)
            assert by_driver == by_sqlalchemy, (url, role)
            compared += by_driver[0] == 200
    store.close()
    assert compared > 100
    assert len(sent) > 300
