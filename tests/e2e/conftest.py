"""A school in a real browser: `site` serves the module's `school`, whichever that is."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page
from werkzeug.serving import make_server

from app.submissions import status_poll
from tests.conftest import WAIT_MS, running_browser
from tests.integration.webapp import School
from tests.support.servers.closing import ends_what_it_sends


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


@pytest.fixture(scope="module")
def site(school: School) -> Iterator[str]:
    server = make_server("127.0.0.1", 0, ends_what_it_sends(school.app), threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where screenshots go; GRADER_SCREENSHOTS names a folder to keep them."""
    kept = os.environ.get("GRADER_SCREENSHOTS")
    return Path(kept) if kept else tmp_path_factory.mktemp("pictures")


@pytest.fixture
def careful(page: Page) -> Iterator[Page]:
    """A page on which scripts may not fail and nothing may break the content policy."""
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda m: problems.append(m.text) if "Content Security Policy" in m.text else None)
    page.set_default_timeout(WAIT_MS)
    yield page
    assert problems == []
