"""The API against its own description, where there is one of everything."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from flask import Response, jsonify

from app.api.routes import ROUTES
from tests.integration import webapp
from tests.integration.web.pages_world import World, build
from tests.support.services import PostgresDatabases


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = build(tmp_path_factory.mktemp("contract"))
    yield made
    made.school.close()


def test_the_description_holds(world: World) -> None:
    from tests.integration.api.api_contract import run

    found = run(world, "admin", 1, examples=False, coverage=False, fuzzing=True, stateful=False)
    assert (found.errors, found.failures) == ([], {})
    assert found.calls > len(ROUTES)


def test_what_does_not_hold_would_be_found(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that lacks a field, and a status that nobody described."""

    from tests.integration.api.api_contract import run

    def broken() -> Response:
        return jsonify({"user_id": "x"})

    def undescribed() -> Response:
        return Response(status=418)

    for view, title in ((broken, "Response violates schema"), (undescribed, "Undocumented status code")):
        monkeypatch.setitem(world.school.app.view_functions, "api.me", view)
        found = run(world, "admin", 1, only="/me", coverage=False, stateful=False).failures
        assert any(title in one for one in found), found


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_ten_thousand_calls(world: World) -> None:
    """Boundary values, random requests, and requests that follow from answers, as four people."""
    from tests.integration.api.api_contract import run

    calls = 0
    for role, most in (("admin", 60), ("teacher", 60), ("anna", 25), ("grader", 25)):
        found = run(world, role, most, examples=False, coverage=True, fuzzing=True, stateful=True)
        print(role, found.calls, sorted(found.statuses.items()))
        assert (found.errors, found.failures) == ([], {}), role
        assert not [status for status in found.statuses if status >= "500"]
        calls += found.calls
    assert calls >= 10_000


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_thousands_of_calls_on_postgresql(postgres_databases: PostgresDatabases) -> None:
    """What only PostgreSQL refuses: NUL, numbers and texts that are too large."""
    from tests.integration.api.api_contract import on_postgresql, run

    world = on_postgresql(postgres_databases.fresh(webapp.prepare))
    found = run(world, "admin", 20, examples=False, coverage=True, fuzzing=True, stateful=True)
    print(found.calls, sorted(found.statuses.items()))
    world.school.close()
    assert (found.errors, found.failures) == ([], {})
    assert not [status for status in found.statuses if status >= "500"]
