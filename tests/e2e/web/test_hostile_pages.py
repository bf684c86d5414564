"""A corpus of hostile text stands in everything that others write, and is seen in a browser as words only."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from app.results import pdf_data as printing
from app.results import typesetting
from app.results import views as results
from app.web import maths
from grading.store import tables
from grading.store.views import submission as submission_view
from tests.e2e.browsing import come_in
from tests.e2e.web import hostile_texts
from tests.integration.results.result_samples import NOTEBOOK, graded, sample
from tests.integration.results.test_pdf import inside
from tests.integration.webapp import School

GROUP = 25
FORMULAS = ", ".join(sorted(maths.TAGS - {"math"}))
INJECTED = (
    f"math :not({FORMULAS}), math [href], math [id], :not(p, li, strong, em, h3, h4, h5, h6) > math, "
    "script, style, link, meta, base, iframe, object, embed, svg, video, audio, source, marquee, "
    "dialog, template:not([data-stage-row]), plaintext, xmp, blink, body, main, title, "
    "[onerror], [onload], [onclick], [onfocus], "
    "[ontoggle], [onmouseover], [style], [srcdoc], [formaction]:not([formaction^='#']), "
    "img:not(.picture), input[type=password]"
)
"""What no text may add to the main part of a page."""
SHAPE = """() => {
    const count = {};
    for (const one of document.querySelectorAll("body *")) {
        count[one.tagName] = (count[one.tagName] || 0) + 1;
    }
    return count;
}"""


@pytest.fixture(scope="module")
def school(tmp_path_factory: pytest.TempPathFactory) -> Iterator[School]:
    made = School(tmp_path_factory.mktemp("school"))
    yield made
    made.close()


@dataclass
class Watch:
    """A page with an eye on what it asks for and what runs in it."""

    page: Page
    site: str
    asked: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("dialog", lambda dialog: self.problems.append(dialog.message) or dialog.dismiss())
        # what the policy had to stop was an element that should not have been there
        self.page.on(
            "console",
            lambda m: self.problems.append(m.text) if "Content Security Policy" in m.text else None,
        )

    def see(self, path: str) -> None:
        """Open a page, also as it is printed, with everything unfolded; nothing happens but the page."""
        self.page.goto(f"{self.site}{path}")
        self.check(path)
        self.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
        self.page.emulate_media(media="print")
        self.check(f"{path} on paper")
        self.page.emulate_media(media="screen")

    def check(self, where: str) -> None:
        """No script ran, nothing outside was asked for, no element came in."""
        page = self.page
        assert page.evaluate("window.pwned") is None, where
        assert page.locator("main").count() == 1, where
        strange = page.locator("main").locator(INJECTED)
        assert strange.evaluate_all("all => all.map(one => one.outerHTML.slice(0, 200))") == [], where
        ways = page.locator("a[href], form[action], img[src]").evaluate_all(
            "all => all.map(one => ['href', 'action', 'src'].map(of => one.getAttribute(of)).find(Boolean))"
        )
        assert [way for way in ways if not re.match(r"[/#?]", way) or way.startswith("//")] == [], where
        assert [url for url in self.asked if not url.startswith(self.site)] == [], where
        assert self.problems == [], where
        assert page.evaluate("document.body.innerText").find("1337") < 0, where  # 7 * 191

    def words(self) -> str:
        """All that can be read."""
        return str(self.page.evaluate("document.querySelector('main').textContent"))


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    made = browser.new_context()
    yield made
    made.close()


@pytest.fixture
def watch(context: BrowserContext, school: School, site: str) -> Watch:
    page = context.new_page()
    page.set_default_timeout(60_000)
    come_in(page, site, school, "anna")
    return Watch(page, site)


def test_the_corpus_is_large_and_would_bite(context: BrowserContext) -> None:
    """Where nothing guards a page, these cases do run scripts, ask outside and add elements."""
    assert len(hostile_texts.cases()) >= 60
    page = context.new_page()
    asked: list[str] = []
    page.route("**/*", lambda route: asked.append(route.request.url) or route.abort())
    page.set_content("<main></main>")
    bad = [
        words for _, words in hostile_texts.cases() if "plaintext" not in words and "http-equiv" not in words
    ]
    with page.expect_request(lambda request: "evil.example" in request.url):
        page.evaluate("all => { for (const one of all) { const d = document.createElement('div'); "
                      "document.querySelector('main').append(d); d.innerHTML = one; } }", bad)  # fmt: skip
    page.wait_for_function("window.pwned === 1")
    page.wait_for_function("document.readyState === 'complete'")
    assert page.locator(INJECTED).count() > 20


def test_a_hostile_notebook_is_read_as_words(watch: Watch, school: School) -> None:
    submission = school.submit("anna", data=hostile_texts.work(), name=hostile_texts.WORK)
    watch.see(f"/submissions/{submission}")
    words = watch.words()
    for name, _ in hostile_texts.cases():
        assert words.count(name) >= 3, name  # as text, as code, in an output
    assert "⟨U+202E⟩erutaef" in words
    assert "\u202e" not in words
    assert "\x1b" not in words
    assert watch.page.locator("img.picture").count() == 1
    watch.page.goto(f"{watch.site}{watch.page.locator('img.picture').get_attribute('src')}")
    watch.asked = [url for url in watch.asked if "evil" in url]
    assert watch.asked == []


@pytest.mark.parametrize("number", range(len(hostile_texts.several(GROUP))))
def test_hostile_words_of_models_and_people_stay_words(watch: Watch, school: School, number: int) -> None:
    group = hostile_texts.several(GROUP)[number]
    words = hostile_texts.whole(group)
    submission = school.submit("anna", data=sample(), name=hostile_texts.WORK)
    school.grade(submission, hostile_texts.hostile_report(words, group[0][0]), released=True)
    hostile_texts.people_say(school, submission, words)
    watch.see(f"/submissions/{submission}")
    seen = watch.words()
    for name, _ in group:
        assert seen.count(name) >= 20, name
    # the next part of the page stands where it should, whatever was said before
    assert watch.page.locator("main [data-result-here] > section[data-documents]").count() == 1
    come_in(watch.page, watch.site, school, "teacher")
    watch.see(f"/submissions/{submission}")
    with school.store.read() as session:
        request = (
            session.query(tables.RegradeRequest).filter_by(submission_id=submission, state="open").one().id
        )
    watch.see(f"/regrades/{request}")
    assert group[0][0] in watch.words()


def test_hostile_names_leave_a_page_in_shape(watch: Watch, school: School) -> None:
    submission = graded(school)
    pages = (f"/submissions/{submission}", f"/assignments/{school.assignment}/submit")
    come_in(watch.page, watch.site, school, "teacher")
    shapes = []
    for path in pages:
        watch.see(path)
        shapes.append(watch.page.evaluate(SHAPE))
    every = hostile_texts.names()
    for at in range(0, len(every), 4):
        hostile_texts.rename(school, [*every[at : at + 4], *every[:4]][:4])
        path, shape = pages[at // 4 % 2], shapes[at // 4 % 2]
        watch.page.goto(f"{watch.site}{path}")
        watch.check(path)
        assert watch.page.evaluate(SHAPE) == shape, (path, at)


def test_hostile_names_in_lists(watch: Watch, school: School) -> None:
    hostile_texts.fill(school)
    come_in(watch.page, watch.site, school, "teacher")
    lists = [
        "/",
        "/submissions",
        "/regrades",
        f"/courses/{school.course}",
        f"/courses/{school.course}/people",
    ]
    for path in lists:
        found = set()
        for number in range(1, 6):
            watch.page.goto(f"{watch.site}{path}?page={number}")
            watch.check(path)
            words = watch.words()
            found |= {name for name, _ in hostile_texts.cases() if name in words}
            if len(found) == len(hostile_texts.cases()) or path == "/":
                break
        assert len(found) == len(hostile_texts.cases()) or path not in ("/submissions", "/regrades"), path
        assert found or path == "/", path
    assert watch.page.get_by_role("heading", level=1).count() == 1


def test_hostile_names_of_files(watch: Watch, school: School) -> None:
    for name in (
        f"<img src=x onerror={hostile_texts.RUN}>.py",
        "\u202eyp.txt.py",
        "a{{7*191}}'\".py",
        "x" * 150 + ".py",
    ):
        submission = school.submit("anna", data=b"x = 1\n", name=name)
        watch.see(f"/submissions/{submission}")


@pytest.mark.parametrize("number", range(len(hostile_texts.several(2 * GROUP))))
def test_a_pdf_of_it_has_no_action_and_no_address(school: School, number: int, tmp_path: Path) -> None:
    words = hostile_texts.whole(hostile_texts.several(2 * GROUP)[number])
    hostile_texts.rename(school, [words] * 4)
    submission = school.submit("anna", data=hostile_texts.work(), name=NOTEBOOK)
    school.grade(submission, hostile_texts.hostile_report(words, "x"), released=True)
    hostile_texts.people_say(school, submission, words)
    with school.app.test_request_context(), school.store.read() as session:
        view = submission_view.load_view(session, submission)
        assert view.grade is not None
        data, files = printing.data(results._printed(session, view, view.grade.report, staff=True))
    pdf = inside(typesetting.typeset(data, files))
    for bad in (b"/URI", b"/JavaScript", b"/JS ", b"/Launch", b"/EmbeddedFile", b"/SubmitForm", b"/GoToR"):
        assert bad not in pdf, bad
