"""Ways to review a class in a browser, with every key and click counted and timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bench.pages.review_class import CRITERIA, Levels

if TYPE_CHECKING:
    from playwright.sync_api import Page

REASON = "ok"
"""What is typed where a page asks for a reason; each letter is a key."""
PATIENCE_MS = 60_000
WHOLE = "document.readyState === 'complete' && !document.querySelector('[aria-busy=true]')"
"""The page is there whole, and takes the next key."""
REVIEWED = (
    "[...document.querySelectorAll('.review-name .state')].some((one) => one.textContent === 'reviewed')"
)
"""The grade itself is marked, not only that of others in the list."""


@dataclass
class Hands:
    """Presses keys and clicks; an action is timed until the page shows what came of it."""

    page: Page
    actions: int = 0
    seconds: list[float] = field(default_factory=list)

    def press(self, key: str, shown: str) -> None:
        """One key; `shown` is what the page's script finds true afterwards."""
        self._do(lambda: self.page.keyboard.press(key), shown)

    def click(self, what: str, shown: str) -> None:
        """One click on the first element that a selector finds."""
        self._do(self.page.locator(what).first.click, shown)

    def type(self, text: str) -> None:
        """As many keys as there are letters."""
        self.page.keyboard.type(text)
        self.actions += len(text)

    def _do(self, act: Callable[[], None], shown: str) -> None:
        began = time.perf_counter()
        act()
        self.page.wait_for_function(shown, timeout=PATIENCE_MS)
        self.seconds.append(time.perf_counter() - began)
        self.actions += 1

    def text(self, selector: str) -> str:
        """What an element says."""
        return self.page.locator(selector).first.inner_text().strip()


Way = Callable[[Hands, str, int, Levels], None]
"""Reviews all submissions of an assignment; its arguments are hands, site, assignment, and levels."""


def by_submission(hands: Hands, site: str, assignment_id: int, levels: Levels) -> None:
    """Submission by submission: go to each criterion, change a level that is wrong, accept the grade."""
    hands.page.goto(f"{site}/assignments/{assignment_id}/review")
    hands.click(".review-list a", f"document.querySelector('#rv-criterion-1') !== null && {WHOLE}")
    for _ in levels:
        wanted = levels[hands.text("h1 bdi")]
        for number, criterion in enumerate(CRITERIA, start=1):
            _to_level(hands, number, wanted[criterion])
        before = hands.page.url
        last = hands.page.locator("[data-rv=next]").count() == 0
        done = f"location.href !== {before!r} && document.querySelector('#rv-criterion-1') && {WHOLE}"
        hands.press("a", REVIEWED if last else done)


def _to_level(hands: Hands, number: int, level: int) -> None:
    """The level is saved with a reason, where it is another one."""
    section = f"#rv-criterion-{number}"
    hands.press(str(number), f"document.activeElement === document.querySelector('{section}')")
    here = hands.page.locator(f"{section} [data-level].here")
    if here.count() and here.first.get_attribute("data-level") == str(level):
        return
    hands.press("l", "true")
    hands.press(str(level), f"document.activeElement.id === 'reason-{number}'")
    hands.type(REASON)
    hands.press("Enter", f"document.querySelector('{section} .changed') !== null && {WHOLE}")


def by_criterion(hands: Hands, site: str, assignment_id: int, levels: Levels) -> None:
    """Criterion by criterion: one level for each submission."""
    title = "[data-across-title] bdi"
    for criterion in CRITERIA:
        hands.page.goto(f"{site}/assignments/{assignment_id}/review/criteria")
        hands.click(f"a[href$='/{criterion}/next']", f"document.querySelector('{title}') !== null && {WHOLE}")
        for _ in levels:
            name = hands.text(title)
            other = f"document.querySelector('{title}')?.textContent.trim() !== {name!r}"
            hands.press(str(levels[name][criterion]), f"{other} && {WHOLE}")


def by_group(hands: Hands, site: str, assignment_id: int, levels: Levels) -> None:
    """Criterion by criterion: one level for each group of equal answers, whose first member says which."""
    title = "[data-across-title]"
    for criterion in CRITERIA:
        hands.page.goto(f"{site}/assignments/{assignment_id}/review/criteria/{criterion}/groups")
        hands.click("a[data-across-start]", f"document.querySelector('{title}') !== null && {WHOLE}")
        while hands.page.locator("[data-across-members]").count():
            wanted = levels[hands.text("[data-across-members] bdi")][criterion]
            before = hands.text(title)
            other = f"document.querySelector('{title}')?.innerText.trim() !== {before!r}"
            hands.press(str(wanted), f"{other} && {WHOLE}")


WAYS: Mapping[str, Way] = {"submission": by_submission, "criterion": by_criterion, "group": by_group}
