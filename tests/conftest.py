"""Fixtures for all tests: services that start when first asked for, and a guard against the network."""

from __future__ import annotations

import fcntl
import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import hypothesis
import pytest

from cli.dev.embedded_redis import RedisProcess, start_redis
from tests.support import network_guard, ordering, second_database, shared_statements, shared_templates
from tests.support.services import (
    BROWSER_FLAGS,
    Databases,
    PostgresDatabases,
    Prepare,
    SqliteDatabases,
    find_browser,
    in_memory,
    running_postgres,
)

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page, Request

# shared cores make single examples slow, and slow to make; `make soak` looks at many more
# the same examples each time: what a change broke shows with the change; the soak looks further
BUSY = hypothesis.settings(deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.register_profile("default", BUSY, derandomize=True, max_examples=50)
hypothesis.settings.register_profile("soak", BUSY, max_examples=2000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

WAIT_MS = 60_000
"""How long a browser waits for what must come."""
YOUNG = 50_000
"""Objects after which the collector looks for cycles."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Mark before pytest chooses by marks; the same order in every process."""
    second_database.mark_repeated(items)
    yield
    ordering.put_in_order(items)


def pytest_configure() -> None:
    """Look for garbage as seldom as the web app does, and keep temporary folders in memory."""
    gc.set_threshold(YOUNG)
    shared_statements.install()
    if memory := in_memory():
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(memory))


def pytest_collection_finish() -> None:
    """What was collected stays to the end: to look for garbage in it takes long, hundreds of times."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """What `-n auto` means."""
    return ordering.processes()


@pytest.fixture(scope="session", autouse=True)
def only_loopback() -> Iterator[None]:
    """Refuse every connection beyond this machine."""
    with pytest.MonkeyPatch.context() as patch:
        network_guard.install(patch)
        yield


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of this run of the tests, the same in all processes that share them."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session", autouse=True)
def templates_compiled_once(shared_folder: Path) -> None:
    """All apps of all processes."""
    shared_templates.install(shared_folder / "templates")


@pytest.fixture
def one_box_at_a_time(shared_folder: Path) -> Iterator[None]:
    """Where one box fills the table of processes, boxes of other tests of the same user would start none."""
    with (shared_folder / "boxes.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# --- Redis --------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    """One Redis with an append-only file for all tests. Tests that stop a Redis start their own."""
    with start_redis(tmp_path_factory.mktemp("redis")) as redis:
        yield redis


@pytest.fixture
def redis_url(redis_server: RedisProcess) -> str:
    """URL of an empty Redis."""
    import redis

    with redis.Redis.from_url(redis_server.url) as client:
        client.flushall()
    return redis_server.url


# --- SQL ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def sqlite_databases(tmp_path_factory: pytest.TempPathFactory) -> SqliteDatabases:
    """Makes SQLite files."""
    return SqliteDatabases(tmp_path_factory.mktemp("sqlite"))


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A PostgreSQL server's administrative database; tests create their own beside it."""
    with running_postgres() as url:
        yield url


@pytest.fixture(scope="session")
def postgres_databases(postgres_url: str) -> Iterator[PostgresDatabases]:
    """Makes databases on PostgreSQL."""
    databases = PostgresDatabases(postgres_url)
    yield databases
    databases.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def databases(request: pytest.FixtureRequest) -> Databases:
    """Both kinds of SQL, one after the other."""
    name = "sqlite_databases" if request.param == "sqlite" else "postgres_databases"
    made: Databases = request.getfixturevalue(name)
    return made


@pytest.fixture
def fresh_database(databases: Databases) -> Iterator[Callable[[Prepare | None], str]]:
    """Makes databases for one test, empty or prepared; what was prepared once is copied afterwards."""
    made: list[str] = []

    def fresh(prepare: Prepare | None = None) -> str:
        made.append(databases.fresh(prepare))
        return made[-1]

    yield fresh
    for url in made:
        databases.drop(url)


@pytest.fixture
def database_url(fresh_database: Callable[[Prepare | None], str]) -> str:
    """SQLAlchemy URL of an empty database, on SQLite and on PostgreSQL."""
    return fresh_database(None)


# --- browser ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless Chromium. One a module: while it lives, asyncio.run() does not work in this thread."""
    yield from running_browser()


def running_browser() -> Iterator[Browser]:
    """A headless Chromium, and patience: what must come may take long on a busy machine."""
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=WAIT_MS)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=find_browser(), headless=True, args=BROWSER_FLAGS
        )
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of its own; asking for anything beyond loopback fails the test."""
    # what moves is drawn again and again, which costs much without a graphics card
    context = browser.new_context(reduced_motion="reduce")
    with asks_loopback_only(context):
        yield context.new_page()
        context.close()


@contextmanager
def asks_loopback_only(context: BrowserContext) -> Iterator[None]:
    """Fail where a page of it asks for anything beyond loopback."""
    outside: list[str] = []

    def note(request: Request) -> None:
        url = urlsplit(request.url)
        if url.scheme in ("http", "https") and not network_guard.is_loopback(url.hostname or ""):
            outside.append(request.url)

    context.on("request", note)  # a route would keep the browser from caching
    yield
    context.remove_listener("request", note)
    assert not outside, f"the page asked for {outside}"


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return Path(__file__).parent.parent
