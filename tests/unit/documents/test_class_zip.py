from __future__ import annotations

import pytest

from grading.documents import UploadedFile
from grading.documents.class_zip import by_student, name_key, parse


@pytest.mark.parametrize(
    ("path", "key", "student", "name", "late", "file"),
    [
        ("doejane_LATE_12345_67890_hw 1.ipynb", "canvas:12345", "12345", "doejane", True, "hw 1.ipynb"),
        ("doejane_12345_67890_hw_1-2.ipynb", "canvas:12345", "12345", "doejane", False, "hw_1-2.ipynb"),
        (
            "Jane Doe_12345_assignsubmission_file_/hw.ipynb",
            "moodle:12345",
            None,
            "Jane Doe",
            False,
            "hw.ipynb",
        ),
        (
            "Jane Doe_12345_assignsubmission_file/sub/hw.R",
            "moodle:12345",
            None,
            "Jane Doe",
            False,
            "sub/hw.R",
        ),
        (
            "Homework 1_jd99_attempt_2026-01-01-10-00-00_hw.py",
            "blackboard:jd99",
            "jd99",
            None,
            False,
            "hw.py",
        ),
        ("doejane_12345_67890_work/src/hw.py", "canvas:12345", "12345", "doejane", False, "work/src/hw.py"),
        ("s0815_hw.ipynb", "id:s0815", "s0815", None, False, "hw.ipynb"),
        ("_hw.ipynb", "id:_hw", "_hw", None, False, "_hw.ipynb"),
        ("s0815.ipynb", "id:s0815", "s0815", None, False, "s0815.ipynb"),
        ("s0815_Jane_Doe/hw.ipynb", "folder:s0815_Jane_Doe", "s0815", "Jane Doe", False, "hw.ipynb"),
        ("Doe, Jane/src/hw.ipynb", "folder:Doe, Jane", "Doe, Jane", "Doe, Jane", False, "src/hw.ipynb"),
    ],
)
def test_names_of_learning_systems(
    path: str, key: str, student: str | None, name: str | None, late: bool, file: str
) -> None:
    owner, own = parse(path)
    assert (owner.key, owner.id, owner.name, owner.late, own) == (key, student, name, late, file)


def test_blackboards_receipt_is_no_file() -> None:
    files = ["HW_jd99_attempt_2026-01-01-10-00-00.txt", "HW_jd99_attempt_2026-01-01-10-00-00_hw.py"]
    (entry,) = by_student([UploadedFile(name, b"x") for name in files])
    assert [file.name for file in entry.files] == ["hw.py"]


def test_one_folder_around_everything_is_taken_away() -> None:
    entries = by_student([UploadedFile(f"class/{who}/hw.py", b"x") for who in ("ann", "bob")])
    assert [entry.id for entry in entries] == ["ann", "bob"]


def test_the_folder_of_the_only_student_stays() -> None:
    (entry,) = by_student([UploadedFile("ann/hw_1.py", b"x"), UploadedFile("ann/hw_2.py", b"x")])
    assert entry.id == "ann"


def test_equal_names_of_one_student_are_kept_apart() -> None:
    (entry,) = by_student([UploadedFile(f"doe_1_{n}_hw.py", b"x") for n in (7, 8)])
    assert [file.name for file in entry.files] == ["hw.py", "2-hw.py"]


def test_names_match_in_any_order_and_without_accents() -> None:
    assert name_key("Müller, Anna") == name_key("Anna Muller") == name_key("mulleranna")
