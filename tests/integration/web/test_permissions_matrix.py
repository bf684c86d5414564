"""Every role × every route × ids of one's own course, of another one and of nothing, from the URL map itself.

What is expected stands in `pages_expected.py`: a new route needs one line there, nothing here.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from werkzeug.routing import Rule

from grading.store.accounts import users
from tests.integration.web.pages_expected import ADMIN, EXPECTED, MATE, OPEN, ROLES, TOKENLESS
from tests.integration.web.pages_world import EVERYBODY, SAFE, World, build
from tests.integration.webapp import form_token

HOW = "Add these lines to EXPECTED in pages_expected.py, if they say what should be answered"
FIRST_ROLES = ("anna", "teacher", "admin")
"""One of each kind; the others are of the same kind where nothing is of their own course."""
ALIKE = ("mate",)
"""Of its own course asked for in the soak only: groups have tests of their own, with all a member may see."""
BY_ROLES = pytest.mark.parametrize(
    "roles",
    [
        pytest.param(FIRST_ROLES, id="first"),
        pytest.param(tuple(set(EVERYBODY) - set(FIRST_ROLES)), id="others", marks=pytest.mark.soak),
    ],
)
DIFFERS = "role: (answered, expected in pages_expected.py; mate and admin may have lines in MATE and ADMIN)"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = build(tmp_path_factory.mktemp("matrix"))
    yield made
    made.school.close()


def routes(world: World) -> list[tuple[str, Rule]]:
    """Every method of every route that is not for everybody."""
    return sorted(
        (
            (method, rule)
            for rule in world.school.app.url_map.iter_rules()
            for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
            if rule.endpoint not in OPEN
        ),
        key=lambda one: (one[1].endpoint, one[0]),
    )


def known(world: World) -> list[tuple[str, Rule]]:
    """Those the table has a line for, with arguments that stand for something."""
    return [
        (method, rule)
        for method, rule in routes(world)
        if (method, rule.endpoint) in EXPECTED and rule.arguments <= set(world.ids)
    ]


def chosen(world: World, which: int, only: str | None = None) -> dict[str, Any]:
    """Arguments: own (0), foreign (1) or nobody's (2); with `only`, all others are own."""
    return {name: values[which if only in (None, name) else 0] for name, values in world.ids.items()}


def expected(method: str, rule: Rule) -> dict[str, int]:
    """By role, also of a group member and the administrator."""
    key = (method, rule.endpoint)
    line = dict(zip(ROLES, EXPECTED[key], strict=True))
    return {**line, "mate": MATE.get(key, line["anna"]), "admin": ADMIN.get(key, line["teacher"])}


def test_every_route_is_in_the_table(world: World) -> None:
    """All that lacks a line, and all lines without a route, at once."""
    there = {(method, rule.endpoint): rule for method, rule in routes(world)}
    problems = []
    for key in sorted(set(there) - set(EXPECTED), key=lambda key: key[1]):
        if unknown := there[key].arguments - set(world.ids):
            problems.append(f"{key[1]}: say in _things or NO_IDS of pages_world.py what {unknown} is")
            continue
        got = tuple(world.ask(role, key[0], there[key], chosen(world, 0)) for role in ROLES)
        problems.append(f'    ("{key[0]}", "{key[1]}"): {got},')
    stale = sorted({*EXPECTED, *MATE, *ADMIN} - set(there))
    problems += [f"take out {key}: there is no such route" for key in stale]
    assert not problems, f"{HOW}:\n" + "\n".join(problems)


@pytest.mark.parametrize(
    "roles",
    [
        pytest.param(tuple(one for one in EVERYBODY if one not in ALIKE), id="first"),
        pytest.param(ALIKE, id="others", marks=pytest.mark.soak),
    ],
)
def test_every_role_and_route(world: World, roles: tuple[str, ...]) -> None:
    """With the ids of the course the line is about."""
    wrong = []
    for method, rule in known(world):
        line = expected(method, rule)
        got = {role: world.ask(role, method, rule, chosen(world, 0)) for role in roles}
        if any(got[role] != line[role] for role in got):
            differs = {role: (got[role], line[role]) for role in got if got[role] != line[role]}
            wrong.append(f"{method} {rule.endpoint}: {differs}")
    assert not wrong, f"{DIFFERS}:\n" + "\n".join(wrong)


def test_the_table_expects_no_fault() -> None:
    every = {key: (*line, MATE.get(key, 0), ADMIN.get(key, 0)) for key, line in EXPECTED.items()}
    assert {key: line for key, line in every.items() if max(line) >= 500} == {}


def test_nobody_is_asked_to_sign_in(world: World) -> None:
    lines = {key: line[0] for key, line in EXPECTED.items() if line[0] not in (303, 401)}
    assert lines == {}
    for method, rule in known(world):
        if method == "GET" and EXPECTED[method, rule.endpoint][0] == 303:
            client, _ = world.client("nobody")
            with world.school.app.test_request_context():
                own = {k: v for k, v in chosen(world, 0).items() if k in rule.arguments}
                url = world.school.app.url_for(rule.endpoint, **own)
            assert client.get(url).headers["Location"].startswith("/sign-in?next="), rule.endpoint


@BY_ROLES
def test_things_of_another_course_are_not_there(world: World, roles: tuple[str, ...]) -> None:
    """What belongs to another course answers as if it did not exist to all who are not of that course."""
    wrong = []
    for method, rule in known(world):
        if not named(world, rule):
            continue
        line = expected(method, rule)
        for role in sorted({*roles} - {"stranger", "admin"}):
            got = world.ask(role, method, rule, chosen(world, 1))
            # what nobody but an administrator may see at all need not hide what there is
            for_all = line[role] == line["stranger"] == 403
            if got not in ({line["nobody"]} if role == "nobody" else {404, 403} if for_all else {404}):
                wrong.append((method, rule.endpoint, role, got))
        for role in sorted({*roles} & {"stranger", "admin"}):
            if (got := world.ask(role, method, rule, chosen(world, 1))) >= 500:
                wrong.append((method, rule.endpoint, role, got))
    assert wrong == []


@BY_ROLES
def test_what_is_not_there_is_not_found(world: World, roles: tuple[str, ...]) -> None:
    wrong = []
    for method, rule in known(world):
        if not named(world, rule):
            continue
        line = expected(method, rule)
        for role in roles:
            got = world.ask(role, method, rule, chosen(world, 2))
            fine = {line["nobody"]} if role == "nobody" else {404, 403} if line[role] == 403 else {404}
            if got not in fine:
                wrong.append((method, rule.endpoint, role, got))
    assert wrong == []


@BY_ROLES
def test_ids_that_do_not_belong_together_are_refused(world: World, roles: tuple[str, ...]) -> None:
    """Somebody's own course with a person, a run or a change of another: for nobody, whatever their role."""
    wrong = []
    for method, rule in known(world):
        names = named(world, rule)
        for name in names if len(names) > 1 else ():
            for role in sorted({*roles} - {"nobody"}):
                got = world.ask(role, method, rule, chosen(world, 1, name))
                if got not in (403, 404):
                    wrong.append((method, rule.endpoint, name, role, got))
    assert wrong == []


def named(world: World, rule: Rule) -> list[str]:
    """The arguments of a route that are ids."""
    return [name for name in sorted(rule.arguments) if len(set(world.ids[name])) == 3]


@pytest.mark.parametrize(
    "forms",
    [
        pytest.param((("nobody", ""), ("admin", ""), ("admin", "foreign")), id="first"),
        pytest.param((("anna", ""), ("teacher", ""), ("admin", "x")), id="others", marks=pytest.mark.soak),
    ],
)
def test_every_form_needs_its_token(world: World, forms: tuple[tuple[str, str], ...]) -> None:
    """Without a token, with a made-up one and with that of another browser: 400, before anything is done."""
    foreign = form_token(world.school.client("ben"), "/sign-in")
    sent: dict[str, dict[str, str]] = {"": {}, "x": {"csrf_token": "x"}, "foreign": {"csrf_token": foreign}}
    wrong = []
    for rule in world.school.app.url_map.iter_rules():
        if rule.endpoint in TOKENLESS or rule.endpoint in ("static", "bootstrap.static"):
            continue
        with world.school.app.test_request_context():
            values = {name: world.ids.get(name, (1,))[0] for name in rule.arguments}
            url = world.school.app.url_for(rule.endpoint, **values)
        for method in (rule.methods or set()) - SAFE:
            for role, token in forms:
                client, _ = world.client(role)
                got = client.open(url, method=method, data={"name": "x", **sent[token]}).status_code
                if got != 400:
                    wrong.append((method, rule.endpoint, role, token, got))
    assert wrong == []


def test_tokens_reach_no_page_and_no_more_than_their_scope(world: World) -> None:
    """A bearer token is for the API: pages do not take it, and without its scope the API does not either."""
    with world.school.store.write() as session:
        user = world.school.users["teacher"]
        chat = users.create_token(session, user, "t", ("chat",), timedelta(days=1))
    header = {"Authorization": f"Bearer {chat.secret}"}
    wrong = []
    for method, rule in known(world):
        with world.school.app.test_request_context():
            values = {k: v for k, v in chosen(world, 0).items() if k in rule.arguments}
            url = world.school.app.url_for(rule.endpoint, **values)
        client = world.school.client()
        if rule.endpoint.startswith("api."):
            got = client.open(url, method=method, headers=header).status_code
            if got not in (400, 403, 404, 415, 422):
                wrong.append((rule.endpoint, got))
        elif method == "GET":
            got = client.get(url, headers=world.bearers["teacher"]).status_code
            if got not in (303, 401):
                wrong.append((rule.endpoint, got))
    world.back()
    assert wrong == []
