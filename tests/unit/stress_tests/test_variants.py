"""Variants of submissions: they change what they say and nothing else, and the same seed makes the same."""

from __future__ import annotations

import json

import pytest

from grading.documents import set_apart
from grading.domain.document import Document
from grading.domain.rubric import Criterion, Rubric
from grading.similarity.code_tokens import tokens_of
from grading.similarity.own_names import spelled
from grading.stress_tests import catalogue
from grading.stress_tests.attacks import KINDS
from grading.stress_tests.catalogue import Planned, make, plan, recombined
from grading.stress_tests.variant import BENIGN, Documents, Setting
from tests.support.gullible import sample_class
from tests.unit.checks.samples import cell, notebook, script, shown

RUBRIC = Rubric(
    criteria=(
        Criterion(id="load", title="Reading", points=5, where="Task 1"),
        Criterion(id="text", title="Reasons", points=5, description="names missing values"),
    )
)
PYTHON = '''import csv

# read the data
def read(path):
    """The rows of a file."""
    found_rows = []
    with open(path) as file:
        for entry in csv.DictReader(file):
            found_rows.append(entry)
    return found_rows


def longest(words):
    best_word = ""
    for word in words:
        if len(word) > len(best_word):
            best_word = word
    return best_word


answer = longest(["a", "bread", "tea"])
text = f"{answer}!"
'''
R = """# Task 1: read the table
sales <- read.csv("sales.csv")

total_revenue <- sum(sales$revenue)
print(total_revenue)
"""
SUMS = "total_revenue <- sum(sales$revenue)\ntotal_revenue * 2"
SETTING = Setting(RUBRIC)


def made(key: str, *documents: Document, setting: Setting = SETTING, seed: int = 1) -> Documents | None:
    return make(Planned(tuple(key.split("+")), ""), documents, setting, seed, "s")


def source(found: Documents | None) -> str:
    assert found is not None
    return "\n".join(one.source for document in found for one in document.cells)


def spelling(code: str, language: str) -> list[str]:
    """Tokens with own names by their order: equal where only names, comments and layout differ."""
    read = tokens_of(code, language)
    return [text for text, _ in spelled(read.tokens, read.parents)]


@pytest.mark.parametrize(("code", "language"), [(PYTHON, "python"), (R, "r")])
@pytest.mark.parametrize(
    "key", ["names.1", "comments.language", "layout.loose", "layout.tight", "length.code"]
)
def test_what_is_free_leaves_the_code_as_it_is(code: str, language: str, key: str) -> None:
    found = source(made(key, script(code, language=language)))
    assert found != code
    assert spelling(found, language) == spelling(code, language)


def test_renamed_code_does_the_same_and_keeps_names_that_others_look_up() -> None:
    setting = Setting(RUBRIC, tests=("assert longest(['a']) == 'a'",))
    found = source(made("identifiers.renamed", script(PYTHON, language="python"), setting=setting))
    assert "my_best_word" in found
    assert "def longest(words)" in found
    assert 'text = f"{my_answer}!"' in found
    assert "def read(path)" in found  # a comment has the word
    before, after = {}, {}
    exec(PYTHON, before)
    exec(found, after)
    assert after["text"] == before["text"] == "bread!"
    assert "my_total_revenue <- sum" in source(made("identifiers.renamed", script(SUMS)))


def test_functions_change_places_and_dependent_cells_do_not() -> None:
    found = source(made("order.cells", script(PYTHON, language="python")))
    assert found.index("def longest") < found.index("def read")
    assert spelling(found, "python") != spelling(PYTHON, "python")
    free = notebook(cell("a <- 1"), cell("b <- 2"), cell("d <- a + b"))
    assert source(made("order.cells", free)).split("\n") == ["b <- 2", "a <- 1", "d <- a + b"]
    assert made("order.cells", notebook(cell("a <- 1"), cell("b <- a"))) is None


def test_a_comment_is_translated_word_by_word() -> None:
    assert "# lesen die Daten" in source(made("comments.language", script(PYTHON, language="python")))
    german = "# lesen die Daten\nx <- 1"
    assert "# read the data" in source(made("comments.language", script(german)))


def test_every_instruction_stands_in_the_work_where_its_class_belongs() -> None:
    work = notebook(cell(R, outputs=shown("[1] 3")), cell("My opinion on missing values.", kind="markdown"))
    every = [key for key in catalogue.catalogue(SETTING) if key.startswith("instructions.")]
    assert len(every) >= 300
    for key in every[::5]:
        found = made(key, work)
        assert found is not None, key
        kind = key.split(".")[1]
        cells = found[0].cells
        if kind == "outputs":
            assert len(cells[0].outputs) == 2
        elif kind == "markdown":
            assert len(cells[1].source) > len(work.cells[1].source)
    chosen = {one.key for n in range(4) for one in plan(SETTING, 7, n, 4)} & {*every}
    assert len(chosen) == 40
    assert {key.split(".")[1] for key in chosen} == set(KINDS)


def test_the_same_seed_makes_the_same_and_plans_are_bounded() -> None:
    work = (script(PYTHON, language="python"),)
    for one in plan(SETTING, 3, 0, 10):
        assert make(one, work, SETTING, 3, "s") == make(one, work, SETTING, 3, "s")
    assert [one.key for one in plan(SETTING, 3, 0, 10)] == [one.key for one in plan(SETTING, 3, 0, 10)]
    assert len(plan(SETTING, 3, 0, 1)) <= 45
    families = {one.family for one in plan(SETTING, 3, 0, 10)}
    assert {*BENIGN, "unchanged", "praise", "length", "keywords", "removed", "wrong value"} <= families


def test_answers_go_and_results_become_others() -> None:
    solution = (notebook(cell("x", outputs=shown("Total: 4598")), path="solution.ipynb"),)
    setting = Setting(RUBRIC, solution=solution)
    work = notebook(
        cell(R, outputs=shown("[1] 4598"), place="Task 1"),
        cell("The revenue is high, 4598 in all, 12 a day.", kind="markdown"),
    )
    gone = made("removed.load", work, setting=setting)
    assert gone is not None
    assert (gone[0].cells[0].source.strip(), gone[0].cells[0].outputs) == ("", ())
    assert gone[0].cells[1].source == work.cells[1].source
    wrong = made("wrong.text", work, setting=setting)
    assert wrong is not None
    assert "13801 in all, 12 a day" in wrong[0].cells[1].source
    assert wrong[0].cells[0].outputs[0].text == "[1] 13801"
    assert made("removed", work, setting=setting) is not None


def test_nothing_is_made_where_there_is_no_place() -> None:
    given = notebook(cell("# write here"))
    setting = Setting(RUBRIC, starter=(given,))
    assert made("praise.comment", given, setting=setting) is None
    assert made("removed", given, setting=setting) is None


def test_parts_are_applied_one_after_the_other_and_the_worst_meet() -> None:
    both = source(made("praise.comment+names.1", script(R)))
    assert source(made("praise.comment", script(R))).count("#") < both.count("#")
    worst = [("a",), ("b",), ("c",)]
    first = recombined(worst, ())
    assert first[("a",)].parts == ("a", "b")
    again = recombined(worst, [frozenset(one.parts) for one in first.values()])
    assert again == {}
    assert recombined([("a", "b"), ("c", "d"), ("e",)], ())[("a", "b")].parts == ("a", "b", "c", "d")


def test_variants_are_as_students_submit_them() -> None:
    found = sample_class("python-basket")
    work = found.works["partial.py"]
    variant = make(Planned(("praise.comment",), "praise"), work, found.setting, 1, "s")
    assert variant is not None
    assert all(not one.added for document in variant for one in document.cells)
    own = set_apart(variant, found.setting.starter)[0].cells[0]
    assert sum(len(one.cells[0].added) for one in set_apart(work, found.setting.starter)) + 2 == len(
        own.added
    )
    json.dumps([document.model_dump(mode="json") for document in variant])
