"""Characters a reader does not see but a model does."""

from __future__ import annotations

import re

ZERO_WIDTH = re.compile("[\u200b\u2060-\u2064\ufeff\u180e\u00ad]")
RUN = re.compile("[\u200b-\u200f\u2060-\u2064\ufeff\u180e]{4,}")
TAGS = re.compile("(?<!\U0001f3f4)(?<![\U000e0020-\U000e007f])[\U000e0000-\U000e007f]{3,}")
"""Tag characters spell hidden ASCII; after a black flag they are an ordinary regional flag."""
SELECTORS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]{3,}")
OVERRIDES = re.compile("[\u202d\u202e]")
EMBEDDING = re.compile("[\u202a\u202b\u2066-\u2068]")
RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
MANY = 24
"""Single zero-width characters come along with text copied from web pages; this many do not."""


def hidden_text(text: str, *, code: bool) -> tuple[int, str] | None:
    """Line (from 0) and sentence for hidden characters that carry text or turn its order, or None."""
    if text.isascii():
        return None
    for pattern, what in (
        (TAGS, "invisible tag characters that spell text"),
        (RUN, "a run of zero-width characters"),
        (SELECTORS, "a run of invisible variation selectors"),
    ):
        hit = pattern.search(text)
        if hit:
            return text.count("\n", 0, hit.start()), f"there is hidden text: {what}"
    if len(ZERO_WIDTH.findall(text)) >= MANY:
        first = ZERO_WIDTH.search(text)
        line = text.count("\n", 0, first.start()) if first else 0
        return line, "there is hidden text: many zero-width characters"
    for number, line_text in enumerate(text.split("\n")):
        turned = OVERRIDES.search(line_text) or (code and EMBEDDING.search(line_text))
        if turned and not RIGHT_TO_LEFT.search(line_text):
            return number, "characters that change the reading direction hide what is written here"
    return None
