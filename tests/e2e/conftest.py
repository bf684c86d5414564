"""A school in a real browser: `site` serves the module's `school`, whichever that is."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Error, Page
from werkzeug.serving import make_server

from app.submissions import status_poll
from tests.conftest import WAIT_MS, asks_loopback_only, running_browser
from tests.e2e.browsing import as_new
from tests.integration.webapp import School
from tests.support.servers.closing import ends_what_it_sends

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """One Chromium for all walks: nothing in this folder needs asyncio.run() in the thread of the tests."""
    yield from running_browser()


QUICK_S = 0.3
"""How often pages here ask how their submission does; the server's rule has its own test."""


@pytest.fixture(scope="package", autouse=True)
def quick_status() -> Iterator[None]:
    """Pages that wait ask often, so that walks do not wait for them."""
    rule = status_poll.next_look_s
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(status_poll, "next_look_s", lambda *given: min(rule(*given), QUICK_S))
        yield


@dataclass
class Shown:
    """The app of the school whose pages are looked at now."""

    app: WSGIApplication | None = None

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        assert self.app is not None, "no school is open"
        return self.app(environ, start_response)


@pytest.fixture(scope="package")
def server() -> Iterator[tuple[str, Shown]]:
    """One address for all schools: scripts and styles that the browser has of it are not loaded again."""
    shown = Shown()
    server = make_server("127.0.0.1", 0, ends_what_it_sends(shown), threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", shown
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def site(server: tuple[str, Shown], school: School) -> Iterator[str]:
    address, shown = server
    shown.app = school.app
    yield address
    shown.app = None


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where screenshots go; GRADER_SCREENSHOTS names a folder to keep them."""
    kept = os.environ.get("GRADER_SCREENSHOTS")
    return Path(kept) if kept else tmp_path_factory.mktemp("pictures")


@pytest.fixture(scope="package")
def tab(browser: Browser) -> Iterator[Page]:
    """One page for all walks: what loads in it again, axe too, its process has compiled already."""
    context = browser.new_context(reduced_motion="reduce")
    yield context.new_page()
    context.close()


@pytest.fixture
def careful(tab: Page) -> Iterator[Page]:
    """A page on which scripts may not fail and nothing may break the content policy, as if it were new."""
    with asks_loopback_only(tab.context):
        with watched(tab):
            yield tab
        as_new(tab)


@pytest.fixture
def careful_alone(page: Page) -> Iterator[Page]:
    """The same in a browser of its own, for what cannot be undone in a page."""
    with watched(page):
        yield page


@contextmanager
def watched(page: Page) -> Iterator[None]:
    """Fail where a script fails or something breaks the content policy."""
    problems: list[str] = []

    def failed(error: Error) -> None:
        problems.append(str(error))

    def said(message: ConsoleMessage) -> None:
        if "Content Security Policy" in message.text:
            problems.append(message.text)

    page.on("pageerror", failed)
    page.on("console", said)
    page.set_default_timeout(WAIT_MS)
    yield
    page.remove_listener("pageerror", failed)
    page.remove_listener("console", said)
    assert problems == []
