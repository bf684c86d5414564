"""A page takes little time and space, whatever was submitted."""

from __future__ import annotations

import re
import time

import pytest

from app.reports.annotated_submission import CUT, SHOWN_CHARS, SHOWN_LINES, ShownDocument, documents
from grading.documents import UploadedFile, read
from grading.domain.document import Cell, Document, Output


def shown(source: str, language: str) -> ShownDocument:
    cell = Cell(number=1, kind="code", source=source, language=language)
    (one,) = documents([Document(path="a", kind="script", language=language, cells=(cell,))], None)
    return one


def plain(html: str) -> str:
    return re.sub("<[^>]+>", "", html).replace("&lt;", "<").replace("&gt;", ">").replace("&#39;", "'")


@pytest.mark.parametrize(
    ("source", "language"),
    [
        ("a." * 190_000, "typescript"),
        ("a." * 400 + "\n" + ("a." * 400 + "\n") * 60, "typescript"),
        (" " * 40_000, "cpp-objdump"),
        ("# " * 20_000, "tcl"),
        ("(" * 40_000, "python"),
        ("/*" * 40_000, "java"),
    ],
)
def test_hostile_code_is_shown_in_little_time(source: str, language: str) -> None:
    started = time.process_time()
    lines = [line for cell in shown(source, language).cells for line in cell.lines]
    assert time.process_time() - started < 5
    assert "\n".join(plain(line.html) for line in lines) == source.removesuffix("\n")


def test_languages_without_colours_are_escaped() -> None:
    for language in ("<b>", "no such language", "dpatch"):
        assert (
            shown("<script>1</script>", language).cells[0].lines[0].html == "&lt;script&gt;1&lt;/script&gt;"
        )
    assert "<span" in shown("def f(): pass", "python").cells[0].lines[0].html


def test_of_a_very_long_submission_the_beginning_is_shown_and_that_is_said() -> None:
    content = read([UploadedFile(f"{n}.py", b"x = 1\n" * 4000) for n in range(4)])
    pages = documents(content.documents, None)
    lines = [line for page in pages for cell in page.cells for line in cell.lines]
    assert SHOWN_LINES - 4 <= len(lines) <= SHOWN_LINES
    assert [CUT in page.notes for page in pages] == [False, True, True, True]


def test_outputs_share_the_room() -> None:
    output = Output(kind="stream", text="y" * 4000)
    cell = Cell(number=1, kind="code", source="x", language="python", outputs=(output,) * 200)
    (one,) = documents([Document(path="a", kind="notebook", language="python", cells=(cell,))], None)
    assert sum(map(len, one.cells[0].outputs)) <= SHOWN_CHARS + 100
    assert one.cells[0].outputs[-1] == "… (the rest is not shown)"
