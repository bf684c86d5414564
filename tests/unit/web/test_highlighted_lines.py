"""Colours change nothing of the source and take little time, whatever it is."""

from __future__ import annotations

import re
import time
from html import unescape

import pytest

from app.web.markdown import highlight_lines

SOURCES = (
    'x = f"a{b}" + r\'c\' # <b>\ndef f(a, *b):\n    """doc\n  <script>"""\n    return 1.5e3 if a else None\n',
    '"""never <ended\n\\',
    "'abc\\\nrest",
    "''''''\"\"\"",
    "a.b1 <- 0x1F; ä_1(2) # 'no string'",
    "\n\n",
    "",
)


@pytest.mark.parametrize("language", ["python", "r"])
@pytest.mark.parametrize("source", SOURCES)
def test_the_source_stays_what_it_was(language: str, source: str) -> None:
    lines = highlight_lines(language, source)
    assert len(lines) == source.count("\n") + 1
    assert [unescape(re.sub("<[^>]+>", "", line)) for line in lines] == source.split("\n")
    for line in lines:
        assert line.count("<span") == line.count("</span>")


def test_keywords_strings_comments_numbers_and_calls() -> None:
    (line,) = highlight_lines("python", "return f('x', 2)  # y")
    assert re.findall(r'class="(\w+)">([^<]+)<', line) == [
        ("k", "return"), ("nf", "f"), ("s", "&#39;x&#39;"), ("mi", "2"), ("c", "# y"),
    ]  # fmt: skip
    assert 'class="k">function<' in highlight_lines("r", "f <- function(x) TRUE")[0]


@pytest.mark.parametrize("piece", ['"', "'", "\\", '"\\', "b", "'''a'b''c", "1.", "rb'", "#", "'\\\n"])
def test_hostile_code_takes_time_by_its_length(piece: str) -> None:
    def seconds(count: int) -> float:
        started = time.thread_time()
        for language in ("python", "r"):
            highlight_lines(language, piece * count)
        return time.thread_time() - started

    assert seconds(20_000) < 5
