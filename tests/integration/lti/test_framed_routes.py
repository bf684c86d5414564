"""Every route below /framed, asked for a course outside of the frame; from the URL map itself.

The reader is an administrator and an instructor of both courses: only the frame takes the other one away.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from flask.testing import FlaskClient
from werkzeug.routing import Rule

from app.web.frames import MARK, PREFIX
from grading.store import tables
from grading.store.accounts import sessions, users
from grading.store.integrations.lti.tables import LtiContext, LtiPlatform
from tests.integration.web.pages_expected import OPEN
from tests.integration.web.pages_world import World, build

HTTPS = "https://localhost"
REFUSED = {400, 401, 403, 404, 405, 409, 410}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = build(tmp_path_factory.mktemp("framed"))
    school = made.school
    with school.store.write() as session:
        platform = session.query(LtiPlatform).one()
        context = {"platform_id": platform.id, "deployment": "d", "context": "c", "scopes": []}
        session.add(LtiContext(course_id=school.course, **context))
        other = session.get_one(tables.Assignment, school.elsewhere).course_id
        for course in (school.course, other):
            users.enrol(session, school.users["admin"], course, "instructor")
    yield made
    school.close()


@pytest.fixture
def browser(world: World) -> FlaskClient:
    """Inside a frame of the platform, as after a launch."""
    client, user = world.school.app.test_client(), world.school.users["admin"]
    with world.school.store.write() as session:
        found, begun = users.load_reader(session, user), sessions.create_session(session, user)
        platform = session.query(LtiPlatform).one().id
    assert found is not None
    with client.session_transaction(base_url=HTTPS, environ_overrides={MARK: True}) as opened:
        opened["_user_id"] = f"{user}:{found.stamp}:{begun}"
        opened["lti_platform"] = platform
    return client


def rules(world: World) -> list[tuple[str, Rule]]:
    """All that are about something of a course, with their methods."""
    return [
        (method, rule)
        for rule in world.school.app.url_map.iter_rules()
        for method in sorted((rule.methods or set()) - {"HEAD", "OPTIONS"})
        if rule.endpoint not in OPEN and any(len(set(world.ids[name])) == 3 for name in rule.arguments)
    ]


def ask(world: World, browser: FlaskClient, method: str, rule: Rule, which: int) -> int:
    values: dict[str, Any] = {name: ids[which] for name, ids in world.ids.items()}
    answer = browser.open(PREFIX + world.url(rule, values), method=method, base_url=HTTPS)
    answer.close()
    return answer.status_code


def test_a_frame_shows_nothing_of_a_course_outside_of_it(world: World, browser: FlaskClient) -> None:
    open_ones = {
        f"{method} {rule.rule}": status
        for method, rule in rules(world)
        if (status := ask(world, browser, method, rule, 1)) not in REFUSED
    }
    assert open_ones == {}


def test_the_same_browser_sees_the_course_of_the_frame(world: World, browser: FlaskClient) -> None:
    """Else the test above would show nothing."""
    pages = [rule for method, rule in rules(world) if method == "GET"]
    seen = [rule.rule for rule in pages if ask(world, browser, "GET", rule, 0) == 200]
    assert len(seen) > 25
    assert "/submissions/<submission_id>/status.json" in seen
