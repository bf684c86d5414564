"""Files to documents: kinds, encodings, notebooks, refusals."""

from __future__ import annotations

import io
import json
import time
import zipfile
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grading.documents import (
    Identity,
    Limits,
    UploadedFile,
    hidden_characters,
    in_language,
    pseudonymise,
    read,
    set_apart,
)  # fmt: skip
from grading.documents.files import ALLOWED_FILES, KINDS, listed
from grading.documents.outputs import html_text
from grading.domain.document import Document
from grading.domain.errors import DocumentError, EmptyUpload, UnsupportedFile, UploadTooLarge
from grading.execution.plan import language_of
from tests.support.german import in_german


def one(name: str, data: bytes | str, limits: Limits | None = None) -> Document:
    raw = data.encode() if isinstance(data, str) else data
    (document,) = read([UploadedFile(name, raw)], limits).documents
    return document


def notebook(*cells: dict[str, Any], kernel: str = "R", **more: Any) -> bytes:
    metadata = {"kernelspec": {"name": "ir", "language": kernel}}
    return json.dumps(
        {"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": list(cells), **more}
    ).encode()


def code(source: str | list[str], *outputs: dict[str, Any], count: int | None = 1) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "source": source,
        "outputs": list(outputs),
        "execution_count": count,
        "metadata": {},
    }


def message(name: str, data: bytes, error: type[DocumentError] = DocumentError) -> str:
    with pytest.raises(error) as caught:
        read([UploadedFile(name, data)])
    text = caught.value.message
    assert text.endswith(".")
    assert "\n" not in text
    assert in_german(caught.value.coded).endswith(".")
    return text


def test_notebook_in_r_with_outputs_and_an_error() -> None:
    table = "<table><thead><tr><th>a</th><th>b</th></tr></thead><tr><td>1 &lt; 2</td><td>x</td></tr></table>"
    document = one(
        "hw.ipynb",
        notebook(
            {"cell_type": "markdown", "source": ["# Title\n", "text"], "metadata": {}},
            code(
                ["# Task 1\n", "x <- 1\n", "x"],
                {"output_type": "stream", "name": "stdout", "text": ["one\n", "two\n"]},
                {"output_type": "stream", "name": "stdout", "text": "three\n"},
                {"output_type": "display_data", "data": {"text/html": table, "image/png": "aGk="}},
                {"output_type": "execute_result", "data": {"text/plain": "[1] 1"}, "execution_count": 1},
            ),
            code(
                "nope()",
                {
                    "output_type": "error",
                    "ename": "ERROR",
                    "evalue": "Error in nope(): could not find function",
                    "traceback": ["\x1b[0;31mError in nope(): could not find function\x1b[0m\nTraceback:\n"],
                },
                count=None,
            ),
        ),
    )
    assert (document.kind, document.language) == ("notebook", "r")
    assert [cell.kind for cell in document.cells] == ["markdown", "code", "code"]
    assert document.cells[0].source == "# Title\ntext"
    stream, display, result = document.cells[1].outputs
    assert stream.text == "one\ntwo\nthree\n"
    assert display.image
    assert display.text == "a\tb\n1 < 2\tx"
    assert (result.kind, result.text, result.image) == ("result", "[1] 1", False)
    (error,) = document.cells[2].outputs
    assert error.kind == "error"
    assert error.text.startswith("Error in nope(): could not find function")
    assert "\x1b" not in error.text
    assert (document.cells[1].execution_count, document.cells[2].execution_count) == (1, None)


def test_progress_bars_keep_their_last_state() -> None:
    output = {"output_type": "stream", "name": "stderr", "text": "10%\r50%\r100%\ndone\r\n"}
    assert one("a.ipynb", notebook(code("x", output))).cells[0].outputs[0].text == "100%\ndone\n"


def test_magics_and_editors_say_the_language_of_a_cell() -> None:
    vscode = {**code("SELECT 1"), "metadata": {"vscode": {"languageId": "sql"}}}
    cells = one("a.ipynb", notebook(code("%%R\nx <- 1"), code("%%time\nx"), vscode, kernel="python")).cells
    assert [cell.language for cell in cells] == ["r", "python", "sql"]


def settled(language: str, *cells: dict[str, Any], kernel: str) -> Document:
    (document,) = in_language([one("a.ipynb", notebook(*cells, kernel=kernel))], language)
    return document


def said(source: str, language: str) -> dict[str, Any]:
    return {**code(source), "metadata": {"vscode": {"languageId": language}}}


def test_cells_that_say_their_language_are_believed_before_the_notebook() -> None:
    for assignment in ("r", ""):
        document = settled(assignment, said("x <- 1", "r"), said("y <- 2", "r"), kernel="python")
        assert (document.language, [cell.language for cell in document.cells]) == ("r", ["r", "r"])
        assert language_of(document) == "r"  # what it is run as
        (note,) = document.notes
        assert "says that it is in Python; its cells are read as R. Choose the R kernel" in note


def test_the_assignment_is_believed_before_the_notebook() -> None:
    document = settled("r", code("x <- 1"), said("SELECT 1", "sql"), code("y <- 2"), kernel="python")
    assert (document.language, [c.language for c in document.cells]) == ("r", ["r", "sql", "r"])
    assert len(document.notes) == 1
    same = settled("r", code("x <- 1"), kernel="R")
    assert (same.language, same.notes) == ("r", ())


@pytest.mark.parametrize("magic", ["%load_ext rpy2.ipython\n", "%%R\nx <- 1", "%matplotlib inline"])
def test_a_notebook_that_needs_ipython_stays_in_python(magic: str) -> None:
    document = settled("r", code(magic), code("x = 1"), kernel="python")
    assert (document.language, document.cells[1].language, document.notes) == ("python", "python", ())


def test_operators_of_r_are_no_magics() -> None:
    document = settled("r", code("x |>\n%in% y\n%>% f()"), kernel="python")
    assert document.language == "r"


def test_a_notebook_that_asks_a_database_stays_in_its_language() -> None:
    document = settled("sql", code("import sqlite3"), said("SELECT 1", "sql"), kernel="python")
    assert (document.language, [c.language for c in document.cells]) == ("python", ["python", "sql"])


def test_long_outputs_are_shortened_with_a_note() -> None:
    output = {"output_type": "stream", "name": "stdout", "text": "A" * 30_000 + "END"}
    document = one("a.ipynb", notebook(code("x", output)))
    text = document.cells[0].outputs[0].text
    assert len(text) < 20_100
    assert "10003 characters left out" in text
    assert text.endswith("END")
    assert "cell 1 of a.ipynb were shortened" in document.notes[0]


def test_pictures_in_markdown_are_left_out_with_a_note() -> None:
    source = "![p](data:image/png;base64," + "A" * 500_000 + ")"
    document = one("a.ipynb", notebook({"cell_type": "markdown", "source": source, "metadata": {}}))
    assert document.cells[0].source == "![p](data:image/png;base64,…)"
    assert document.notes


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"not json", "damaged or not a notebook"),
        (b"[" * 100_000, "damaged or not a notebook"),
        (b'{"a":' * 50_000, "damaged or not a notebook"),
        (b'{"nbformat": 4, "cells": [], "x": ' + b"9" * 10_000 + b"}", "damaged or not a notebook"),
        (b"[" + b"[]," * 2_500_000 + b"[]]", "too much data"),
        (b'{"hello": 1}', "is not a Jupyter notebook"),
        (b"[1, 2]", "is not a Jupyter notebook"),
        (b'{"nbformat": 4, "cells": [1]}', "is not a Jupyter notebook"),
        (b'{"nbformat": 4, "cells": "x"}', "is not a Jupyter notebook"),
        (
            b'{"nbformat": 3, "worksheets": []}',
            "saved in the old notebook format 3; open it in Jupyter and save it again",
        ),
        (b'{"nbformat": 5, "cells": []}', "newer notebook format"),
    ],
)
def test_what_is_no_notebook_is_said(data: bytes, words: str) -> None:
    text = message("hw.ipynb", data)
    assert words in text
    assert "hw.ipynb" in text


def test_notebooks_without_content_are_empty() -> None:
    message("hw.ipynb", notebook(), EmptyUpload)
    message("hw.ipynb", notebook(code("  \n")), EmptyUpload)


def test_odd_values_in_notebooks_do_no_harm() -> None:
    data = notebook(
        {
            "cell_type": "code",
            "source": {"a": 1},
            "outputs": {"b": 2},
            "execution_count": "x",
            "metadata": [],
        },
        {"cell_type": ["code"], "source": "raw \ud800 text"},
        {"cell_type": "heading", "source": "x"},
        code("y", {"output_type": "display_data", "data": [1]}, {"output_type": 7}, {"output_type": "error"}),
        code("z", {"output_type": "execute_result", "data": {"application/json": {"a": [1]}}}, count=10**12),
    )
    cells = one("a.ipynb", data).cells
    assert [cell.kind for cell in cells] == ["code", "raw", "raw", "code", "code"]
    assert cells[1].source == "raw ��� text"
    assert cells[4].outputs[0].text == '{"a": [1]}'
    assert cells[4].execution_count is None


RMD = """---
title: "HW"
author: Ann
---

Intro

# Part 1

```{r load, echo=FALSE}
library(dplyr)
x <- 1
```
Text

```r
shown_only()
```

## Task 2

```{python}
y = 2
```
The end
"""


def test_r_markdown_alternates_and_keeps_its_lines() -> None:
    document = one("hw.Rmd", RMD)
    lines = RMD.split("\n")
    assert [(c.kind, c.language) for c in document.cells] == [
        ("raw", "yaml"),
        ("markdown", "markdown"),
        ("markdown", "markdown"),
        ("code", "r"),
        ("markdown", "markdown"),
        ("markdown", "markdown"),
        ("code", "python"),
        ("markdown", "markdown"),
    ]
    for cell in document.cells:
        first = cell.first_line - 1
        assert lines[first : first + len(cell.lines)] == cell.lines
    assert document.cells[3].place == "load"
    assert (document.kind, document.language) == ("script", "r")
    assert "not closed" in one("a.qmd", "x\n```{r}\ny <- 1\n").notes[0]


def test_markdown_has_a_cell_for_each_heading() -> None:
    document = one("answers.md", "# One\ntext\n```\n# no heading\n```\n## Two\nmore\n")
    assert [cell.source.split("\n")[0] for cell in document.cells] == ["# One", "## Two"]
    assert document.cells[1].first_line == 6
    assert document.kind == "prose"


@pytest.mark.parametrize(("ending", "found"), sorted(KINDS.items()))
def test_every_script_is_one_cell(ending: str, found: tuple[str, str]) -> None:
    if ending == ".ipynb":
        document = one("a.IPYNB", notebook(code("x = 1"), kernel="python"))
    else:
        document = one(f"A{ending.upper()}", "x = 1\r\ny = 2\r")
        assert document.cells[0].source.rstrip("\n") == "x = 1\ny = 2"
    assert document.kind == found[0]
    assert len(document.cells) == 1


TEXT = 'größe <- "Müller"  # Öl für 5 €\nprint(größe)\n'


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp1252"]
)
def test_encodings_of_western_scripts(encoding: str) -> None:
    document = one("a.R", TEXT.encode(encoding))
    assert document.cells[0].source == TEXT
    assert bool(document.notes) == (not encoding.startswith("utf-8"))


def test_chinese_and_russian_scripts_in_old_encodings() -> None:
    chinese = (
        "# 这是一个关于数据分析的作业\n# 学生需要清理产品名称并计算平均值\nx <- 1\nprint('结果是正确的')\n"
    )
    assert one("a.R", chinese.encode("gb18030")).cells[0].source == chinese
    russian = "# Это домашняя работа по анализу данных\n# Нужно посчитать среднее значение\nx <- 1\n"
    assert one("a.R", russian.encode("cp1251")).cells[0].source == russian


def test_latin_1_bytes_that_cp1252_lacks() -> None:
    assert (
        one("a.py", b"# caf\xe9 \x81 na\xefve r\xe9sum\xe9 d\xe9j\xe0\nx = 1\n")
        .cells[0]
        .source.startswith("# café")
    )


@pytest.mark.parametrize(
    "data", [b"\x89PNG\r\n\x1a\n123", b"%PDF-1.7 x", b"PK\x03\x04zz", bytes(range(256)) * 20]
)
def test_binary_content_is_refused(data: bytes) -> None:
    assert "text" in message("a.py", data)


def test_refusals_are_german_throughout() -> None:
    with pytest.raises(DocumentError) as caught:
        read([UploadedFile("a.py", b"%PDF-1.7 x")])
    assert caught.value.message.startswith("a.py is a PDF, not text")
    assert in_german(caught.value.coded).startswith("a.py ist eine PDF-Datei und kein Text")
    with pytest.raises(UnsupportedFile) as caught:
        read([UploadedFile("a.exe", b"x")])
    assert caught.value.message.endswith(f"submit {ALLOWED_FILES} or a .zip of these.")
    assert f"{ALLOWED_FILES} oder eine ZIP-Datei davon" in in_german(caught.value.coded)


def test_nul_is_left_out_with_a_note() -> None:
    document = one("a.py", b"x = 1\n" * 50 + b"y\0 = 2\n")
    assert "\0" not in document.cells[0].source
    assert "NUL" in document.notes[0]


def test_uploads_that_are_refused_as_a_whole() -> None:
    limits = Limits(max_files=2, max_file_bytes=100, max_upload_bytes=150)
    small = [UploadedFile(f"{n}.py", b"x = 1") for n in range(3)]
    with pytest.raises(EmptyUpload):
        read([], limits)
    with pytest.raises(UploadTooLarge):
        read(small, limits)
    with pytest.raises(UploadTooLarge):
        read([UploadedFile("a.py", b"x" * 101)], limits)
    with pytest.raises(UploadTooLarge):
        read([UploadedFile("a.py", b"x" * 80), UploadedFile("b.py", b"x" * 80)], limits)
    with pytest.raises(DocumentError, match=r"Two files are called A\.py"):
        read([UploadedFile("a.py", b"x"), UploadedFile("A.py", b"y")])


@pytest.mark.parametrize("name", ["report.pdf", "data.csv", "noextension", ".py", "x.py.exe"])
def test_other_kinds_name_what_can_be_graded(name: str) -> None:
    assert ".ipynb" in message(name, b"x", UnsupportedFile)


def test_data_lies_beside_the_work_within_its_limit() -> None:
    limits = Limits(max_data_bytes=10)
    work, table, big = (
        b"x = 1\n",
        UploadedFile("Sales.CSV", b"a,b\n1,2\n"),
        UploadedFile("b.xlsx", b"PK\0" * 2),
    )
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("hw/a.py", work)
        archive.writestr("hw/sales.csv", table.data)
        archive.writestr("hw/empty.csv", b"")
        archive.writestr("hw/a.exe", b"MZ")
    for files in ([UploadedFile("a.py", work), table], [UploadedFile("hw.zip", packed.getvalue())]):
        found = read(files, limits)
        assert [file.data for file in found.files] == [work, table.data]
        assert len(found.documents) == 1
        assert "lies beside your work when it is run, and is not graded itself" in found.notes[-1].lower()
        assert found.files[1].name in found.notes[-1]
    with pytest.raises(UploadTooLarge, match="data files are larger"):
        read([UploadedFile("a.py", work), table, big], limits)
    with pytest.raises(EmptyUpload, match="only data"):
        read([table], limits)
    with pytest.raises(UnsupportedFile):
        read([UploadedFile("a.py", work), table])  # where none is taken
    with pytest.raises(DocumentError, match="Two files are called"):
        read([UploadedFile("a.py", work), table, UploadedFile("sales.csv", b"a")], limits)


@pytest.mark.parametrize("name", ["C:\\fakepath\\a.py", "../../a.py", "/etc/a.py", "a\u200b.py"])
def test_folders_of_uploaded_names_are_dropped(name: str) -> None:
    assert one(name, "x = 1").path == "a.py"


@pytest.mark.parametrize("data", [b"", b"  \n\t\n", b"\xef\xbb\xbf"])
def test_empty_files(data: bytes) -> None:
    assert "a.py is empty" in message("a.py", data, EmptyUpload)


def test_hidden_characters_are_found_and_emoji_are_not() -> None:
    text = "fine é 你 👩\u200d💻 ❤️\nzero\u200bwidth\n\u202eflip\u202c\x1b[0m\ttab"
    assert hidden_characters(text) == [
        (2, "ZERO WIDTH SPACE"),
        (3, "RIGHT-TO-LEFT OVERRIDE"),
        (3, "POP DIRECTIONAL FORMATTING"),
        (3, "CONTROL U+001B"),
    ]
    assert hidden_characters("a\nb\n") == []


def test_html_of_hostile_shape_takes_little_time() -> None:
    assert html_text("<script>" * 10_000 + "x") == ""
    assert html_text("<" * 200_000).startswith("<")
    assert html_text("<p>a<script>bad()</script>b</p><style>c</style>") == "ab"


@pytest.mark.parametrize(
    "line",
    [
        "# " + " " * 300_000 + "x",
        "```{r" + " " * 300_000 + "x",
        "```{" + "r" * 300_000,
        "#" * 300_000,
        "/" * 300_000,
        "[your " * 50_000,
        " " * 300_000 + "x",
        "*" * 300_000,
        "_" * 300_000,
        "\x1b]" * 100_000 + "a" * 9_000_000,
        "-" * 300_000 + ":",
        "\n".join(["Name" + " " * 200 + "=" + " " * 30] * 1_000),
        "Anna\t" * 60_000,
        "a." * 150_000,
    ],
)
@pytest.mark.parametrize("name", ["a.Rmd", "a.py", "a.md"])
def test_lines_of_hostile_shape_take_little_time(line: str, name: str) -> None:
    started = time.process_time()
    try:
        documents = read([UploadedFile(name, line.encode())]).documents
    except DocumentError:
        documents = ()
    pseudonymise(set_apart(documents), Identity(("Anna Maria Muster",), ("a1234",), ("a.muster@uni.edu",)))
    assert time.process_time() - started < 3


def test_lists_in_sentences() -> None:
    assert [listed([]), listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"])] == [
        "",
        "a",
        "a and b",
        "a, b and c",
    ]
    assert listed(list("abcdefghijk")).endswith("and 3 more")


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([*KINDS, ".zip", ".csv", ""]), st.binary(max_size=300), st.text(max_size=20))
def test_any_bytes_are_read_or_refused(ending: str, data: bytes, stem: str) -> None:
    try:
        documents = read([UploadedFile(stem + ending, data)]).documents
    except DocumentError as error:
        sentence, code, documents = error.message, error.coded.code, ()
    else:
        sentence, code = "Read.", "read"
    assert code
    assert sentence.endswith(".")
    assert all(document.model_dump_json() for document in documents)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                [
                    "cells",
                    "cell_type",
                    "source",
                    "outputs",
                    "output_type",
                    "data",
                    "text",
                    "metadata",
                    "text/html",
                    "code",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(json_values, max_size=4), json_values)
def test_any_json_is_read_or_refused(outputs: list[Any], source: Any) -> None:
    cell = {
        "cell_type": "code",
        "source": source,
        "outputs": outputs,
        "metadata": source,
        "execution_count": source,
    }
    for book in (notebook(cell, code("x")), notebook(cell, metadata=source), json.dumps(source).encode()):
        try:
            cells = read([UploadedFile("a.ipynb", book)]).documents[0].cells
        except DocumentError:
            continue
        assert [cell.number for cell in cells] == list(range(1, len(cells) + 1))
