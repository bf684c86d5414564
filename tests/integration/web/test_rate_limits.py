"""Limits are counted together by all web processes, and by each alone while Redis is not reachable."""

from __future__ import annotations

import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import requests
from flask import Flask
from limits.storage import RedisStorage
from redis.exceptions import ConnectionError as RedisConnectionError

from app.web.rate_limits import within
from cli.dev.embedded_redis import free_port
from cli.dev.local_stack import accepts_uploads
from grading.broker import redis_acl, signing
from grading.broker.rate_counts import RATE_COUNTS, open_rate_counts
from tests.integration.webapp import School, configuration
from tests.support.redis_servers import acl_file, client, redis_server
from tests.support.services import SqliteDatabases
from tests.support.system import furnish, site, until

EACH = 10


def made(tmp_path: Path, stack: ExitStack, *urls: str) -> tuple[School, list[Flask]]:
    schools = [School(tmp_path, api_per_minute=EACH) for _ in urls]
    for school, url in zip(schools, urls, strict=True):
        pool = open_rate_counts(url)
        school.services = replace(school.services, rate_counts=pool)
        stack.callback(school.store.close)
        stack.callback(pool.disconnect)
    return schools[0], [school.app for school in schools]


def ask(app: Flask, headers: dict[str, str]) -> int:
    return app.test_client().get("/api/v1/me", headers=headers).status_code


def test_two_processes_count_together(tmp_path: Path, redis_url: str) -> None:
    with ExitStack() as stack, ThreadPoolExecutor(8) as pool:
        school, (one, two) = made(tmp_path, stack, redis_url, redis_url)
        anna, ben = school.token("anna"), school.token("ben")
        answers = pool.map(lambda app: ask(app, anna), [one, two] * EACH)
        assert Counter(answers) == {200: EACH, 429: EACH}
        assert ask(two, ben) == 200
    with client(redis_url) as admin:
        keys = list(admin.scan_iter())
        assert len(keys) == 2
        for key in keys:
            assert key.startswith(f"{RATE_COUNTS}:")
            assert 0 < admin.ttl(key) <= 60


def test_each_counts_alone_while_redis_refuses_it_and_together_again_after(tmp_path: Path) -> None:
    with ExitStack() as stack:
        port = stack.enter_context(redis_server(tmp_path / "redis", "requirepass rotated"))
        url = f"redis://:right@127.0.0.1:{port}/0"
        school, apps = made(tmp_path, stack, url, url)
        anna, ben = school.token("anna"), school.token("ben")
        for app in apps:
            assert Counter(ask(app, anna) for _ in range(EACH + 2)) == {200: EACH, 429: 2}
            with app.test_request_context():
                assert [within("2 per minute", "tries") for _ in range(3)] == [True, True, False]
        admin = stack.enter_context(client(f"redis://:rotated@127.0.0.1:{port}/0"))
        assert list(admin.scan_iter()) == []
        admin.config_set("requirepass", "right")
        one, two = apps
        until(lambda: ask(one, anna) and list(admin.scan_iter()), 30, "it counts in Redis again")
        until(lambda: ask(two, anna) and ask(one, anna) == 429, 30, "both count in Redis again")
        answers = Counter(ask(app, ben) for app in [one, two] * EACH)
        assert answers == {200: EACH, 429: EACH}


def test_an_answer_needs_no_redis_that_went_away_after_it_counted(
    tmp_path: Path, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> None:
        raise RedisConnectionError("gone")

    with ExitStack() as stack:
        school, (app,) = made(tmp_path, stack, redis_url)
        headers = school.token("anna")
        told = app.test_client().get("/api/v1/me", headers=headers)
        assert (told.status_code, told.headers["RateLimit-Policy"]) == (200, f'"api";q={EACH};w=60')
        monkeypatch.setattr(RedisStorage, "get_moving_window", gone)
        told = app.test_client().get("/api/v1/me", headers=headers)
        assert (told.status_code, told.headers["RateLimit"]) == (200, '"api";r=1;t=60')


def test_the_server_s_user_may_count(tmp_path: Path) -> None:
    users = redis_acl.lines(configuration(), {signing.SERVER: "a long password"})
    with ExitStack() as stack:
        lines = acl_file(tmp_path / "redis", users)
        port = stack.enter_context(redis_server(tmp_path / "redis", lines))
        school, (app,) = made(tmp_path, stack, f"redis://server:a%20long%20password@127.0.0.1:{port}/0")
        assert ask(app, school.token("anna")) == 200
        admin = stack.enter_context(client(f"redis://test:test@127.0.0.1:{port}/0"))
        assert len(list(admin.scan_iter(f"{RATE_COUNTS}*"))) == 1


CONFIG = """
[server]
api_per_minute = 20
[[machines]]
name = "one"
[machines.stages]
analysis = { engine = "instant", model = "m" }
feedback = { engine = "instant", model = "m" }
"""


@pytest.mark.soak
def test_two_web_apps_count_requests_and_wrong_passwords_together(
    tmp_path: Path, redis_url: str, sqlite_databases: SqliteDatabases
) -> None:
    with site(tmp_path, CONFIG, sqlite_databases.fresh(), redis_url) as made:
        urls = [f"http://127.0.0.1:{free_port()}" for _ in range(2)]
        for number, url in enumerate(urls):
            made.parts.start(f"web{number}", "web", "--port", url.rpartition(":")[2])
        token = furnish(made.store, urls[0]).token
        for url in urls:
            until(lambda url=url: accepts_uploads(url), 60, "both answer")

        def me(url: str) -> int:
            headers = {"Authorization": f"Bearer {token}"}
            return requests.get(f"{url}/api/v1/me", headers=headers, timeout=30).status_code

        with ThreadPoolExecutor(8) as pool:
            assert Counter(pool.map(me, urls * 20)) == {200: 20, 429: 20}
        tries = [signs_in(url, "wrong") for url in urls * 5]
        # four are free, then the pause doubles; two that count alone refuse the eleventh first
        assert 4 <= tries.index(429) <= 9


def signs_in(url: str, password: str) -> int:
    with requests.Session() as browser:
        found = re.search(r'name="csrf_token"[^>]*value="([^"]+)"', browser.get(f"{url}/sign-in").text)
        assert found is not None
        form = {"csrf_token": found[1], "name": "admin", "password": password}
        return browser.post(f"{url}/sign-in", data=form, timeout=30).status_code
