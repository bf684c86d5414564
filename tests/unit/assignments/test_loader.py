from __future__ import annotations

import json
from pathlib import Path

import pytest

from grading.assignments.loader import read_folder
from grading.checks.kinds.code import Uses
from grading.documents import Limits
from grading.domain.check import CheckBase, check_kinds
from grading.domain.errors import AssignmentError

COMPLETE = """
title = "Rivers"
slug = "rivers-1"
language = "r"
due = 2026-12-01T23:59:00+01:00
release = "at_once"
share_solution = true

[equivalents]
name = ["River_Name"]

[[criteria]]
id = "clean"
title = "Cleaning"
points = 20
where = 'Task 2\\.1'
levels = ["no", "partly", "yes"]
[[criteria.checks]]
kind = "uses"
all_of = ["str_trim"]
[[criteria.checks]]
kind = "ladder"
[[criteria.checks.rungs]]
credit = 0.5
[[criteria.checks.rungs.when]]
kind = "words"
at_least = 5
"""
HEAD = 'title = "T"\n[[criteria]]\nid = "a"\ntitle = "A"\npoints = 1\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "My Rivers"
    for name in ("starter", "solution", "data", "instructions"):
        (path / name).mkdir(parents=True)
    (path / "assignment.toml").write_text(COMPLETE)
    (path / "task.md").write_text("Clean the rivers.\n")
    (path / "starter" / "work.R").write_text("# Task 2.1\nlibrary(stringr)\n")
    (path / "solution" / "work.R").write_text("# Task 2.1\nlibrary(stringr)\nx <- str_trim(y)\n")
    (path / "data" / "rivers.csv").write_bytes(b"\xff\x00")
    (path / "instructions" / "feedback.md").write_text("Be warm.\n")
    return path


def manifest(folder: Path, text: str) -> Path:
    (folder / "assignment.toml").write_text(text)
    return folder


def test_a_complete_folder(folder: Path) -> None:
    found = read_folder(folder)
    assert (found.slug, found.title, found.language, found.task) == (
        "rivers-1",
        "Rivers",
        "r",
        "Clean the rivers.",
    )
    assert found.due is not None
    assert found.due.isoformat() == "2026-12-01T23:59:00+01:00"
    assert (found.release, found.share_solution) == ("at_once", True)
    assert found.rubric.max_points == 20
    assert found.rubric.equivalents == {"name": ("River_Name",)}
    assert found.rubric.criteria[0].checks[0] == Uses(all_of=("str_trim",))
    assert found.instructions == {"feedback": "Be warm."}
    assert [d.path for d in found.starter] == ["work.R"]
    assert found.solution[0].cells[0].added == (3,)
    assert dict(found.files)["data/rivers.csv"] == b"\xff\x00"
    assert found.notes == ()


def test_defaults(folder: Path) -> None:
    found = read_folder(manifest(folder, HEAD))
    assert (found.slug, found.language, found.release, found.due) == ("my-rivers", "r", None, None)
    assert not found.share_solution


def test_the_version_follows_every_byte(folder: Path) -> None:
    first = read_folder(folder).version
    assert read_folder(folder).version == first
    (folder / ".hidden").write_text("x")
    assert read_folder(folder).version == first
    (folder / "data" / "rivers.csv").write_bytes(b"\xff\x01")
    assert read_folder(folder).version != first


def test_a_legacy_rubric_file(folder: Path) -> None:
    legacy = {"rubric_elements": {"a": {"max_points": 4, "weight": 0.5, "criteria": ["Runs"]}}}
    (folder / "rubric.json").write_text(json.dumps(legacy))
    text = 'title = "T"\nrubric = "./rubric.json"\n[equivalents]\nx = ["y"]\n'
    found = read_folder(manifest(folder, text))
    assert [c.id for c in found.rubric.criteria] == ["a"]
    assert found.rubric.equivalents["x"] == ("y",)
    assert found.notes[0].startswith("a has weight 0.5, which would be 2 points, but max_points is 4")


def test_a_rubric_file_of_our_own(folder: Path) -> None:
    (folder / "r.json").write_text(json.dumps({"criteria": [{"id": "a", "title": "A", "points": 2}]}))
    assert read_folder(manifest(folder, 'title = "T"\nrubric = "r.json"')).rubric.max_points == 2
    (folder / "r.json").write_text(json.dumps({"criteria": [{"id": "a", "title": "A", "points": 0}]}))
    with pytest.raises(AssignmentError, match=r"^criteria\[0\]\.points: input should be greater than 0"):
        read_folder(folder)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('title = "T"', "criteria: are missing"),
        ("title =", "assignment.toml: is not valid TOML"),
        ("[[criteria]]", "title: is missing"),
        ('colour = 1\ntitle = "T"', "colour: is not a known key; allowed are "),
        ('title = "T"\ndue = 2026-12-01', "due: must be a date and time with its offset"),
        ('title = "T"\nrelease = "now"', "release: must be 'at_once', 'after_review' or 'at'"),
        ('title = "T"\nlanguage = "cobol"', "language: must be 'r', 'python'"),
        ('title = "T"\nslug = "A b"', "slug: may contain only lowercase letters"),
        ('title = "T"\nrubric = "../r.json"', "rubric: there is no file ../r.json in the folder"),
        (
            HEAD.replace("[[", 'rubric = "r.json"\n[[', 1),
            "rubric: names a file, but criteria are set here too",
        ),
        (HEAD.replace("[[", 'task = "x"\n[[', 1), "task: is set, but the folder has a task.md too"),
        (HEAD + HEAD.partition("\n")[2], "criterion ids must be unique; twice: a"),
        (HEAD + 'levels = ["x"]', r"criteria[0].levels: needs at least two levels"),
        (HEAD + "levls = 1", "criteria[0].levls: is not a known key; allowed are bonus, checks"),
        (
            HEAD + '[[criteria.checks]]\nkind = "usess"',
            "criteria[0].checks[0].kind: must be one of uses, avoids",
        ),
        (HEAD + "[[criteria.checks]]\nat_least = 1", "criteria[0].checks[0].kind: must be one of uses"),
        (
            HEAD + '[[criteria.checks]]\nkind = "uses"',
            "criteria[0].checks[0]: checks nothing; set all_of or any_of",
        ),
        (
            HEAD + '[[criteria.checks]]\nkind = "uses"\nall_of = "x"',
            "criteria[0].checks[0].all_of: must be a list",
        ),
        (
            HEAD + '[[criteria.checks]]\nkind = "uses"\nallof = ["x"]',
            "criteria[0].checks[0].allof: is not a known key; allowed are all_of, any_of, cap",
        ),
        (
            HEAD + '[[criteria.checks]]\nkind = "code_matches"\nall_of = ["a", "(b+)+"]',
            "criteria[0].checks[0].all_of[1]: the regular expression '(b+)+' repeats",
        ),
        (HEAD + 'where = "("', "criteria[0].where: the regular expression '(' is not valid"),
        (
            HEAD + '[[criteria.checks]]\nkind = "ladder"\n[[criteria.checks.rungs]]\ncredit = 1\n'
            '[[criteria.checks.rungs.when]]\nkind = "words"\nat_least = 0',
            "criteria[0].checks[0].rungs[0].when[0].at_least: input should be greater than 0",
        ),
    ],
)
def test_mistakes_name_the_key_and_what_is_allowed(folder: Path, text: str, said: str) -> None:
    with pytest.raises(AssignmentError) as caught:
        read_folder(manifest(folder, text))
    assert caught.value.message.startswith(said)


def test_missing_and_odd_files(folder: Path) -> None:
    with pytest.raises(AssignmentError, match="is not a folder"):
        read_folder(folder / "nothing")
    (folder / "instructions" / "Not a stage.md").write_text("x")
    with pytest.raises(AssignmentError, match="name it after a stage"):
        read_folder(folder)
    (folder / "instructions" / "Not a stage.md").unlink()
    (folder / "task.md").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(AssignmentError, match=r"task\.md: is not UTF-8"):
        read_folder(folder)
    (folder / "assignment.toml").unlink()
    with pytest.raises(AssignmentError, match=r"assignment\.toml: is missing"):
        read_folder(folder)


def test_links_and_large_files_are_refused(folder: Path) -> None:
    with pytest.raises(AssignmentError, match="exceeds the size limit"):
        read_folder(folder, Limits(max_file_bytes=10))
    (folder / "data" / "link").symlink_to("/etc/hostname")
    with pytest.raises(AssignmentError, match="data/link: is a link"):
        read_folder(folder)


def test_a_starter_that_cannot_be_read_names_its_folder(folder: Path) -> None:
    (folder / "starter" / "work.ipynb").write_text("{")
    with pytest.raises(AssignmentError, match=r"^starter: .*work\.ipynb"):
        read_folder(folder)


def test_the_example_in_the_documentation_is_read(folder: Path) -> None:
    text = (Path(__file__).parents[3] / "docs" / "reference" / "assignments.md").read_text(encoding="utf-8")
    example = text.partition("```toml\n")[2].partition("```")[0]
    found = read_folder(manifest(folder, example))
    assert [c.id for c in found.rubric.criteria] == ["cleaning", "dates", "runs", "why"]
    assert found.rubric.max_points == 50


def test_the_documentation_names_every_check_and_key() -> None:
    text = (Path(__file__).parents[3] / "docs" / "reference" / "assignments.md").read_text(encoding="utf-8")
    for kind, model in check_kinds().items():
        row = next((line for line in text.split("\n") if line.startswith(f"| `{kind}` |")), "")
        own = set(model.model_fields) - set(CheckBase.model_fields) - {"kind"}
        assert row, kind
        assert all(f"`{key}`" in row for key in own), kind
