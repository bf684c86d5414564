"""What a student added to the starter, and where a cell belongs."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grading.documents import UploadedFile, read, set_apart
from grading.domain.document import Cell, Document

TITLE = "# Homework 3: Dates\n\n**Student Name:** [Enter Your Name]\n\n**Date Submitted:** [Enter Date]\n"
CLEAN = """# Task 2.1: Clean Product Names
# TODO: Create a new column 'name_clean'
#   - Removes white space

products_clean <- products %>%
  mutate(
    # Your code here:

  )

cat("Cleaned names:\\n")
products_clean %>%
  head(10) %>%
  print()
"""
COUNT = """# Task 2.2: Count Categories
# TODO: Count the categories
counts <-

print(counts)
"""
IMPORT = """# Task 1.1: Import
# TODO: read feedback.csv
feedback <-

cat("rows:", nrow(feedback), "\\n")
"""
QUESTION = (
    "### Question 3.1: Limits\n\n**What are the limits of this analysis?**\n\n[Write your answer here]\n"
)


def notebook(*cells: tuple[str, str], path: str = "hw3.ipynb") -> Document:
    return Document(
        path=path,
        kind="notebook",
        language="r",
        cells=tuple(
            Cell(number=n, kind="code" if kind == "code" else "markdown", source=source, language="r")
            for n, (kind, source) in enumerate(cells, start=1)
        ),
    )


STARTER_CELLS = [
    ("md", TITLE),
    ("md", "## Part 1: Import"),
    ("code", IMPORT),
    ("md", "## Part 2: Cleaning\n\n**Your tasks:** clean the names"),
    ("code", CLEAN),
    ("code", COUNT),
    ("md", "## Part 3: Reflection"),
    ("md", QUESTION),
]
STARTER = notebook(*STARTER_CELLS)


def apart(document: Document, *starter: Document) -> Document:
    (result,) = set_apart([document], starter or (STARTER,))
    return result


def changed(index: int, source: str) -> Document:
    cells = list(STARTER_CELLS)
    cells[index] = (cells[index][0], source)
    return notebook(*cells)


def test_the_starter_itself_adds_nothing() -> None:
    assert [cell.added for cell in apart(STARTER).cells] == [()] * len(STARTER.cells)


def test_only_the_lines_the_student_wrote_are_added() -> None:
    filled = CLEAN.replace("    # Your code here:\n", "    name_clean = str_to_title(str_trim(name))")
    cell = apart(changed(4, filled)).cells[4]
    assert cell.own == "    name_clean = str_to_title(str_trim(name))"


def test_completing_a_line_is_work_and_removing_a_todo_is_none() -> None:
    done = IMPORT.replace("# TODO: read feedback.csv\n", "").replace("<-", '<- read_csv("feedback.csv")')
    assert apart(changed(2, done)).cells[2].own == 'feedback <- read_csv("feedback.csv")'


def test_reformatting_is_no_work() -> None:
    one_line = CLEAN.replace(
        "products_clean %>%\n  head(10) %>%\n  print()", "products_clean%>%head(10) %>% print()"
    ).replace("  mutate(", "\tmutate (")
    assert apart(changed(4, one_line)).cells[4].added == ()


def test_answers_count_and_questions_do_not() -> None:
    answered = QUESTION.replace(
        "[Write your answer here]", "The data is from one month only.\n\nIt is small."
    )
    assert apart(changed(7, answered)).cells[7].own == "The data is from one month only.\nIt is small."


def test_the_form_at_the_top_is_no_work() -> None:
    filled = TITLE.replace("[Enter Your Name]", "Ann Lee").replace("[Enter Date]", "1 May")
    assert apart(changed(0, filled)).cells[0].added == ()


def test_without_a_starter_all_but_blank_lines_and_brackets_is_added() -> None:
    (result,) = set_apart([notebook(("code", "f(\n\n  1\n)\n"))])
    assert result.cells[0].added == (1, 3)


def test_places_have_headings_and_first_comments() -> None:
    places = [cell.place for cell in apart(STARTER).cells]
    assert places[2] == "Part 1: Import | Task 1.1: Import"
    assert places[4] == "Part 2: Cleaning | Task 2.1: Clean Product Names"
    assert places[7] == "Part 3: Reflection > Question 3.1: Limits"
    assert places[0] == "Homework 3: Dates"


def test_cells_are_found_again_after_deleting_comments_and_headings() -> None:
    bare = (
        "products_clean <- products %>%\n  mutate(name_clean = str_trim(name))\nproducts_clean %>% head(10)"
    )
    document = notebook(("code", "library(dplyr)"), ("code", 'feedback <- read_csv("f.csv")'), ("code", bare))
    cell = apart(document).cells[2]
    assert "Task 2.1: Clean Product Names" in cell.place
    assert "Part 2: Cleaning" in cell.place


def test_a_rewritten_cell_between_known_neighbours_is_found() -> None:
    document = changed(5, "zz = table(q)\nzz")
    cell = apart(document).cells[5]
    assert "Task 2.2: Count Categories" in cell.place
    assert cell.added == (1, 2)


def test_inserted_moved_and_deleted_cells_do_not_confuse_the_others() -> None:
    solved = COUNT.replace("counts <-", "counts <- count(products_clean, category)")
    cells = [
        *STARTER_CELLS[:4],
        ("code", "# my helper\nhelper <- function(x) x"),
        ("code", solved),
        STARTER_CELLS[4],
    ]
    result = apart(notebook(*cells)).cells
    assert result[4].added == (1, 2)
    assert result[5].own == "counts <- count(products_clean, category)"
    assert "Task 2.2" in result[5].place
    assert result[6].added == ()
    assert "Task 2.1" in result[6].place


def test_cells_inserted_after_a_task_belong_to_it() -> None:
    cells = [*STARTER_CELLS[:5], ("code", "summary(products_clean)"), *STARTER_CELLS[5:]]
    result = apart(notebook(*cells)).cells
    assert "Task 2.1" in result[5].place
    assert result[5].added == (1,)
    assert "Task 2.1" not in result[6].place


def test_split_merged_and_copied_cells_add_nothing() -> None:
    head, tail = CLEAN.split("cat(")
    split = [*STARTER_CELLS[:4], ("code", head), ("code", "cat(" + tail), *STARTER_CELLS[5:]]
    merged = [*STARTER_CELLS[:4], ("code", CLEAN + COUNT), *STARTER_CELLS[6:]]
    copied = [*STARTER_CELLS[:5], ("code", CLEAN), *STARTER_CELLS[5:]]
    for cells in (split, merged, copied):
        assert not any(cell.added for cell in apart(notebook(*cells)).cells)


def test_renamed_files_are_compared_with_what_they_resemble() -> None:
    other = notebook(("code", "a <- 1\nb <- 2"), path="other.ipynb")
    renamed = STARTER.model_copy(update={"path": "final_final.ipynb"})
    (result,) = set_apart([renamed], [other, STARTER])
    assert not any(cell.added for cell in result.cells)
    foreign = notebook(("code", "q <- 7\nr <- 8"), path="else.ipynb")
    assert apart(foreign).cells[0].added == (1, 2)


def test_names_are_no_places() -> None:
    source = b"# Author: Zo Quist\n# Date: 1 May\n# Task 1: load\nx = 1\n"
    (document,) = set_apart(read([UploadedFile("a.py", source)]).documents)
    assert document.cells[0].place == "Task 1: load"
    assert document.cells[0].added == (3, 4)


def test_scripts_carry_the_labels_of_all_their_tasks() -> None:
    source = b"# Homework\nimport os\n# Task 1: load\nx = 1\n# ---- Cleaning ----\n# Task 2: clean\n"
    (document,) = set_apart(read([UploadedFile("a.py", source)]).documents)
    assert document.cells[0].place == "Homework | Task 1: load | Cleaning | Task 2: clean"


@pytest.mark.parametrize(
    ("language", "source"),
    [("sql", "-- Task 1\nSELECT 1"), ("java", "// Task 1\nint x;"), ("c", "/* Task 1 */\n#include <a.h>")],
)
def test_comments_of_other_languages(language: str, source: str) -> None:
    document = Document(
        path="a",
        kind="script",
        language=language,
        cells=(Cell(number=1, kind="code", source=source, language=language),),
    )
    assert set_apart([document])[0].cells[0].place == "Task 1"


def test_two_hundred_cells_take_little_time() -> None:
    starter = notebook(
        *(("code", f"# Task {n}: thing {n}\n" + CLEAN.replace("name", f"name{n}")) for n in range(200))
    )
    own = notebook(
        *(
            (c.kind, c.source.replace("head(10)", f"head({c.number})\n  own({c.number})"))
            for c in starter.cells
        )
    )
    started = time.process_time()
    (result,) = set_apart([own], [starter])
    assert time.process_time() - started < 1.0  # it takes 0.1 s
    assert all(cell.added for cell in result.cells)


def test_long_hostile_scripts_take_little_time() -> None:
    starter = notebook(("code", "x <- 1\ny <- 2\n" * 2_000))
    own = notebook(("code", "x <- 1\n" * 20_000 + "new()\n"))
    started = time.process_time()
    (result,) = set_apart([own], [starter])
    assert time.process_time() - started < 3
    assert 20_001 in result.cells[0].added


lines = st.lists(
    st.sampled_from(["x <- 1", "", "  y", ")", "# Task 1", "## H", "cat(x)", "# TODO: a", "z = f(1)"]),
    max_size=8,
)


@settings(max_examples=80, deadline=None)
@given(st.lists(lines, max_size=5), st.lists(lines, max_size=5))
def test_added_lines_exist_and_what_was_given_is_never_added(
    own: list[list[str]], given_: list[list[str]]
) -> None:
    mine = notebook(*(("code", "\n".join(found)) for found in own))
    starter = notebook(*(("code", "\n".join(found)) for found in given_))
    (result,) = set_apart([mine], [starter])
    for cell in result.cells:
        assert all(cell.lines[n - 1].strip() for n in cell.added)
        assert "\n" not in cell.place
    assert not any(cell.added for cell in set_apart([starter], [starter])[0].cells)
