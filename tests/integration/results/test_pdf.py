"""A result as a PDF: who gets it, what is in it, that nothing in it is markup, and the zip of a class."""

from __future__ import annotations

import io
import json
import re
import threading
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typst

from app.reports.images import Picture
from app.results import pdf_data, typesetting
from app.results import views as results
from app.results.pdf_data import blocks
from app.web.markdown import markdown
from app.web.zip_stream import file_name, stream
from grading.domain.errors import NotFound
from grading.store import tables
from grading.store.views import submission as submission_view
from tests.integration.results.result_samples import NOTEBOOK, change, code, graded, notebook, picture, png
from tests.integration.sandbox import executed
from tests.integration.webapp import School, report

TYPST = (
    '#panic("never") $x^2$ *b* _i_ `r` = h\n<l> @l \\ #{1+1} #import "@preview/x" #read("/etc/hosts") ] } ) "'
)


@pytest.fixture
def school(tmp_path: Path) -> Iterator[School]:
    made = School(tmp_path)
    yield made
    made.close()


def data_of(school: School, submission: str, staff: bool = False) -> tuple[dict[str, Any], dict[str, bytes]]:
    with school.app.test_request_context(), school.store.read() as session:
        view = submission_view.load_view(session, submission)
        assert view.grade is not None
        return pdf_data.data(results._printed(session, view, view.grade.report, staff))


def inside(data: bytes) -> bytes:
    """The PDF with its streams unpacked."""
    found = [data]
    for packed in re.findall(rb"stream\r?\n(.*?)\r?\nendstream", data, re.DOTALL):
        try:
            found.append(zlib.decompress(packed))
        except zlib.error:
            found.append(packed)
    return b"\n".join(found)


def said(made: dict[str, Any], folder: Path, what: str) -> list[str]:
    """The texts of this kind in the document that the template makes of the data."""
    (folder / "result.typ").write_bytes((typesetting.HERE / "print" / "result.typ").read_bytes())
    asked = typst.query(
        str(folder / "result.typ"), what, field="text", root=str(folder), ignore_system_fonts=True,
        sys_inputs={"data": json.dumps(made)},
    )  # fmt: skip
    return list(json.loads(asked))


def test_whoever_sees_the_result_gets_its_pdf(school: School) -> None:
    submission = graded(school, released=False)
    url = f"/submissions/{submission}/result.pdf"
    assert school.client("anna").get(url).status_code == 404
    assert "no result to look at yet" in school.client("anna").get(url).get_data(as_text=True)
    assert school.client("teacher").get(url).status_code == 200
    with school.store.write() as session:
        grade = session.query(tables.Grade).one()
        grade.released_at = grade.created_at
    answer = school.client("anna").get(url)
    assert (answer.status_code, answer.mimetype) == (200, "application/pdf")
    assert answer.data.startswith(b"%PDF-")
    assert answer.headers["Content-Disposition"] == "attachment; filename=hw1-Anna-submission-1.pdf"
    assert b"/Subtype /Image" in answer.data or b"/Subtype/Image" in answer.data
    answer.close()
    with school.store.read() as session:
        rows = session.query(tables.Audit).filter_by(action="grade.view", detail={"how": "pdf"})
        assert rows.count() == 1
    for who in ("ben", "stranger"):
        assert school.client(who).get(url).status_code == 404


def test_the_pdf_tells_the_same_as_the_page(school: School) -> None:
    submission = graded(school)
    change(school, submission, kind="points", target="think", points=6, reason="Well argued.")
    change(school, submission, kind="add", text="See page 3.", document=NOTEBOOK, cell=3, line=1)
    made, files = data_of(school, submission)
    assert (made["points"], made["of"]) == ("10", "of 10 points")
    first, second = made["criteria"]
    assert first["quotes"] == [
        {"text": "sales = pd.read_csv('sales.csv')", "place": "work.ipynb, cell 2, line 2"}
    ]
    assert second["changed"] == "Changed manually. Before: 4.5 points"
    (document,) = made["documents"]
    titles = [part["title"] for part in document["parts"] if part["kind"] == "comment"]
    assert titles == [
        "Well done: Reads the file",
        "Suggestion: Name the axes",
        "Comment by the course staff: Teacher",
        "Important: No total is made",
    ]
    assert list(files) == ["0.png"]
    assert any(re.search(r"day\s+sum", part["text"]) for part in parts(document, "output"))


def parts(document: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [part for part in document["parts"] if part["kind"] == kind]


def test_students_get_nothing_of_hidden_tests(school: School) -> None:
    submission = executed.submit_tested(school)
    asked: list[dict[str, Any]] = []
    real = typesetting.typeset

    def kept(data: dict[str, Any], files: dict[str, bytes]) -> bytes:
        asked.append(data)
        return real(data, files)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("app.results.typesetting.typeset", kept)
        for who in ("anna", "teacher"):
            assert school.client(who).get(f"/submissions/{submission}/result.pdf").status_code == 200
    mine, theirs = map(json.dumps, asked)
    for word in executed.SECRETS:
        assert word not in mine
    assert "hidden-name" in theirs
    for text in (mine, theirs):
        assert "2 of 4 tests passed" in text


def test_what_others_wrote_is_never_markup(school: School, tmp_path: Path) -> None:
    made = report(TYPST)
    source = notebook(code(TYPST, {"output_type": "stream", "name": "stdout", "text": TYPST}))
    submission = school.submit("anna", data=source, name=NOTEBOOK)
    with school.store.write() as session:
        session.get_one(tables.User, school.users["anna"]).name = TYPST[:180]
        session.get_one(tables.Assignment, school.assignment).title = TYPST[:180]
    school.grade(submission, made, released=True)
    found, files = data_of(school, submission)
    printed = inside(typesetting.typeset(found, files))
    for bad in (b"/URI", b"/JavaScript", b"/JS", b"/EmbeddedFile", b"/Launch", b"localhost"):
        assert bad not in printed
    folder = tmp_path / "typst"
    folder.mkdir()
    raws = said(found, folder, "raw")
    assert (
        sum(TYPST.split("\n")[0][:60] in one for one in raws) >= 2
    )  # the cell and its output, to the letter
    assert said(found, folder, "math.equation") == []


def test_a_long_submission_is_cut_and_that_is_said(school: School) -> None:
    cells = [code("\n".join(f"x{n} = {n}" for n in range(300))) for _ in range(20)]
    cells.append(code("y" * 300_000))
    submission = school.submit("anna", data=notebook(*cells), name=NOTEBOOK)
    school.grade(submission, report(), released=True)
    found, files = data_of(school, submission)
    (document,) = found["documents"]
    assert sum(part["text"].count("\n") + 1 for part in parts(document, "code")) <= pdf_data.LINES + 20
    assert "too long to print completely" in document["parts"][0]["text"]
    assert len(typesetting.typeset(found, files)) < 3_000_000
    wide = school.submit("anna", data=("a" * 100_000 + "\n").encode(), name="w.py")
    school.grade(wide, report(), released=True)
    (document,) = data_of(school, wide)[0]["documents"]
    (block,) = parts(document, "code")
    assert max(map(len, block["text"].split("\n"))) <= pdf_data.COLUMNS
    assert block["text"].count("\n") <= pdf_data.LINES_OF_ONE
    assert len(block["numbers"]) == block["text"].count("\n") + 1


def test_pictures_have_a_bound_and_broken_ones_cost_only_themselves(school: School) -> None:
    submission = school.submit("anna", data=notebook(code("x", *[picture(png(9, 9))] * 40)), name=NOTEBOOK)
    school.grade(submission, report(), released=True)
    found, files = data_of(school, submission)
    assert len(files) == pdf_data.PICTURES
    files["0.png"] = b"no picture"
    assert typesetting.typeset(found, files).startswith(b"%PDF-")
    big = pdf_data.Files({("a", 1): {0: Picture("png", b"", 5_000, 5_000)}})
    with school.app.test_request_context():
        assert big.part("a", 1, 0)["kind"] == "note"
    assert big.kept == {}


def test_typesetting_ends_in_time_and_has_turns(school: School, monkeypatch: pytest.MonkeyPatch) -> None:
    submission = graded(school)
    with monkeypatch.context() as patched:
        patched.setattr("app.results.typesetting.SECONDS", 0.001)
        answer = school.client("anna").get(f"/submissions/{submission}/result.pdf")
        assert answer.status_code == 503
        assert "Try again in a minute" in answer.get_data(as_text=True)
    monkeypatch.setattr("app.results.typesetting._turns", threading.BoundedSemaphore(1))
    monkeypatch.setattr("app.results.typesetting.PATIENCE_S", 0.01)
    with typesetting._turns:
        answer = school.client("anna").get(f"/submissions/{submission}/result.pdf")
        assert answer.status_code == 503
    assert school.client("anna").get(f"/submissions/{submission}/result.pdf").status_code == 200


def test_logs_quote_nothing_of_what_could_not_be_typeset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    secret = "Ada's words\x1b[2J\nWARNING root: all is lost"
    (tmp_path / "print").mkdir()
    (tmp_path / "print" / "result.typ").write_text('#panic(sys.inputs.at("data"))')
    (tmp_path / "typesetting_process.py").write_bytes(
        (typesetting.HERE / "typesetting_process.py").read_bytes()
    )
    monkeypatch.setattr("app.results.typesetting.HERE", tmp_path)
    with pytest.raises(typesetting.NotPrinted), caplog.at_level("WARNING"):
        typesetting.typeset({"title": secret}, {})
    (line,) = [one.getMessage() for one in caplog.records if one.name == "app.results.typesetting"]
    assert re.fullmatch(
        r"a PDF could not be created \(exit status 1\): [A-Za-z_.]+, \d+ bytes of error output", line
    ), line
    for hostile in (b"\x1b[2J", b"a\x00b: Error", b"", b"x" * 20_000, b"\nFakeError\x1b[1m"):
        assert re.fullmatch(r"[A-Za-z_. ]{1,70}", typesetting._kind(hostile))


def test_a_class_comes_as_a_zip(school: School, monkeypatch: pytest.MonkeyPatch) -> None:
    graded(school)
    counts = graded(school)
    bens = graded(school, "ben", released=False)
    with school.store.write() as session:
        session.get_one(tables.User, school.users["anna"]).name = "../../Änna\u202e <b>\\..:*"
        session.get_one(tables.User, school.users["ben"]).name = "con"
    url = f"/assignments/{school.assignment}/results.zip"
    for who, status in (("anna", 403), ("grader", 403), ("stranger", 404)):
        assert school.client(who).get(url).status_code == status
    answer = school.client("teacher").get(url)
    assert answer.is_streamed
    packed = zipfile.ZipFile(io.BytesIO(answer.data))
    anna, ben = school.users["anna"], school.users["ben"]
    assert sorted(packed.namelist()) == [f"con--{ben}-submission-1.pdf", f"Änna-b-{anna}-submission-2.pdf"]
    assert all(packed.read(name).startswith(b"%PDF-") for name in packed.namelist())
    answer.close()
    assert counts != bens
    with school.store.read() as session:
        (row,) = session.query(tables.Audit).filter_by(action="grade.view").all()
        assert (row.object, row.detail) == (f"assignment:{school.assignment}", {"how": "zip", "count": 2})
    empty = school.client("teacher").get(f"/assignments/{school.quick}/results.zip")
    assert zipfile.ZipFile(io.BytesIO(empty.data)).namelist() == []


def test_a_zip_is_made_while_it_is_sent() -> None:
    made: list[str] = []

    def member(name: str) -> bytes:
        made.append(name)
        if name == "bad":
            raise NotFound("It is gone.")
        return b"x" * 1000

    pieces = stream((name, lambda name=name: member(name)) for name in ("a", "bad", "c"))  # type: ignore[misc]
    first = next(pieces)
    assert made == ["a"]
    assert len(first) > 1000
    packed = zipfile.ZipFile(io.BytesIO(first + b"".join(pieces)))
    assert packed.namelist() == ["a", "c", "not-printed.txt"]
    assert packed.read("not-printed.txt") == b"bad: It is gone.\n"


def test_names_of_files_are_harmless() -> None:
    assert file_name("../../etc/passwd", "NUL", "") == "etc-passwd-NUL-"
    assert file_name("\u202e\0", "***") == "result"
    assert len(file_name("x" * 500, "y" * 500)) <= 121
    assert file_name("Zoë O'Hara", "7") == "Zoë-O-Hara-7"


def test_markdown_becomes_pieces() -> None:
    assert blocks("**b** and `c`\n\n1. one\n2. *two*\n\n```\n#x\n```") == [
        {"kind": "text", "runs": [["b", "b"], [" and ", ""], ["c", "c"]], "depth": 0, "mark": ""},
        {"kind": "item", "runs": [["one", ""]], "depth": 0, "mark": "1."},
        {"kind": "item", "runs": [["two", "i"]], "depth": 0, "mark": "2."},
        {"kind": "code", "text": "#x"},
    ]
    deep = blocks("> " * 500 + "- " * 500 + "x")
    assert "x" in json.dumps(deep)


@pytest.mark.parametrize("mark", ["> ", "- ", "1. ", ">", "* - > "])
@pytest.mark.parametrize("depth", [5, 30, 39, 45, 500])
def test_nothing_lies_too_deep_in_markdown_to_be_shown(mark: str, depth: int) -> None:
    assert "found" in json.dumps(blocks(mark * depth + "found"))
    assert "found" in markdown(mark * depth + "found")
    nested = "\n".join(f"{'  ' * n}- x{n}" for n in range(depth))
    assert f"x{depth - 1}" in markdown(nested)
