"""Characters a reader does not see but a model does."""

from __future__ import annotations

import re

from grading.domain.messages import Message, define_message

ZERO_WIDTH = re.compile("[\u200b\u2060-\u2064\ufeff\u180e]")
"""Soft hyphens are left out: word processors put one into every long word."""
RUN = re.compile("[\u200b-\u200f\u2060-\u2064\ufeff\u180e]{4,}")
WITHIN = re.compile("(?<=[A-Za-z])[\u200b-\u200f\u2060-\u2064\ufeff\u180e]+(?=[A-Za-z])")
"""Between Latin letters these join and part nothing."""
MOST_WITHIN = 2
LETTERS = re.compile("[A-Za-z](?:\u00ad[A-Za-z]){3,}")
"""A soft hyphen after every letter; words are parted by syllables."""
REGION = re.compile(
    "\U0001f3f4[\U000e0061-\U000e007a]{2}[\U000e0030-\U000e0039\U000e0061-\U000e007a]{1,3}\U000e007f"
)
"""A black flag with tag characters is the flag of a region."""
TAGS = re.compile("[\U000e0000-\U000e007f]")
SELECTORS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]{3,}")
OVERRIDES = re.compile("[\u202d\u202e]")
OVER_LATIN = re.compile("[\u202d\u202e][^\u202c\n]{0,200}?[A-Za-z]{3}")
EMBEDDING = re.compile("[\u202b\u2067\u2068]")
"""Those that begin text from right to left; copied paths of Windows begin with the other kind."""
RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
HIDDEN_TEXT = define_message("manipulation.hidden_text", "hidden text: %(what)s")
SPELLED = define_message("manipulation.tags", "invisible tag characters that spell text")
ZERO_WIDTH_RUN = define_message("manipulation.zero_width", "a run of zero-width characters")
AFTER_LETTERS = define_message("manipulation.after_letters", "an invisible character after every letter")
SELECTOR_RUN = define_message("manipulation.selectors", "a run of invisible variation selectors")
MANY_ZERO_WIDTH = define_message("manipulation.many_zero_width", "many zero-width characters")
TURNED = define_message(
    "manipulation.direction",
    "characters that change the text direction hide part of this text",
)
MANY = 24
"""Single zero-width characters come along with text copied from web pages; this many do not."""


def hidden_text(text: str, *, code: bool) -> tuple[int, Message] | None:
    """Line (from 0) and sentence for hidden characters that carry text or turn its order, or None."""
    if text.isascii():
        return None
    without_flags = REGION.sub("", text)
    for pattern, what in (
        (TAGS, SPELLED),
        (RUN, ZERO_WIDTH_RUN),
        (LETTERS, AFTER_LETTERS),
        (SELECTORS, SELECTOR_RUN),
    ):
        hit = pattern.search(without_flags)
        if hit:
            return without_flags.count("\n", 0, hit.start()), HIDDEN_TEXT(what=what())
    for pattern, most in ((ZERO_WIDTH, MANY - 1), (WITHIN, MOST_WITHIN)):
        hits = [hit.start() for hit in pattern.finditer(text)]
        if len(hits) > most:
            return text.count("\n", 0, hits[0]), HIDDEN_TEXT(what=MANY_ZERO_WIDTH())
    return _turned(text, code=code)


def _turned(text: str, *, code: bool) -> tuple[int, Message] | None:
    """The first line whose reading direction is changed without a language that needs it."""
    for number, line in enumerate(text.split("\n")):
        turned = OVERRIDES.search(line) or (code and EMBEDDING.search(line))
        if turned and (not RIGHT_TO_LEFT.search(line) or OVER_LATIN.search(line)):
            return number, TURNED()
    return None
