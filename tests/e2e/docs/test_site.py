"""The site of docs/: `make docs` builds it without a warning, and it loads nothing from elsewhere."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.conftest import WAIT_MS
from tests.e2e.browsing import faults

DIAGRAM = "explanation/architecture.html"
GUIDE = "how-to/instructors/regrades.html"
DECISION = "decisions/0001-sql-decides-when-a-round-is-complete.html"


class Quiet(SimpleHTTPRequestHandler):
    """Files, without a line for each request."""

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def built(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` does: dead links, dead anchors, pages outside of the navigation fail."""
    folder = tmp_path_factory.mktemp("docs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(
        command,
        cwd=root,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    return folder


@pytest.fixture(scope="module")
def docs(built: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(built)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(
    params=[
        pytest.param(390, id="phone"),
        # what is too wide, foreign, hard to read or not found here is so on a phone, too
        pytest.param(1600, id="wide", marks=pytest.mark.soak),
    ]
)
def reader(browser: Browser, docs: str, request: pytest.FixtureRequest) -> Iterator[Page]:
    """A page that may ask for nothing but the site, and whose scripts may not fail."""
    page = browser.new_page(viewport={"width": request.param, "height": 900})
    page.set_default_timeout(WAIT_MS)
    foreign: list[str] = []
    problems: list[str] = []
    page.on("request", lambda sent: foreign.append(sent.url) if is_foreign(sent.url, docs) else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
    yield page
    page.close()
    assert (foreign, problems) == ([], [])


def is_foreign(url: str, site: str) -> bool:
    return not url.startswith((f"{site}/", "data:", "blob:"))


def test_pages_load_nothing_from_elsewhere(reader: Page, docs: str) -> None:
    for place in ("index.html", DIAGRAM, DECISION):
        reader.goto(f"{docs}/{place}")
        expect(reader.locator("h1")).to_be_visible()
        assert reader.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), place
        faults(reader, place)
    reader.goto(f"{docs}/{DIAGRAM}")
    drawn = "one => one.complete && one.naturalWidth > 100"
    diagrams = reader.locator("img.diagram")
    assert diagrams.count() >= 2
    assert all(one.evaluate(drawn) for one in diagrams.all())


def test_a_page_is_found_by_its_words(reader: Page, docs: str) -> None:
    reader.goto(f"{docs}/index.html")
    reader.keyboard.press("/")
    # by keys: the search hears released keys, not what is put into its field at once
    reader.get_by_placeholder("Search").press_sequentially("answer regrade requests")
    reader.locator(f".md-search-result__link[href*='{GUIDE}']").first.click()
    expect(reader.locator("h1")).to_contain_text("Answer regrade requests")


def test_a_page_of_elsewhere_would_be_seen() -> None:
    assert is_foreign("https://fonts.example/roboto.css", "http://127.0.0.1:1")
    assert is_foreign("http://127.0.0.1:12/x.js", "http://127.0.0.1:1")
    assert not is_foreign("http://127.0.0.1:1/x.js", "http://127.0.0.1:1")
