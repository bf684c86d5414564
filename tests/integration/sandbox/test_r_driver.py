"""The driver of students' R: playing cells, looking at variables, evaluating expressions."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from grading.execution.values import Answer, Played, Shape
from tests.support.r_drivers import Line, driver, pictures, text_of
from tests.support.system import until

SAMPLE = Path("samples/assignments/sales-cleaning")


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Line]:
    """A driver that has played nothing."""
    with driver("r_submission.R", tmp_path) as line:
        yield line


@pytest.fixture(scope="module")
def tidy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    """A driver for work that leaves nothing behind but variables; it plays one after the other."""
    with driver("r_submission.R", tmp_path_factory.mktemp("tidy")) as line:
        yield line


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    """A driver to ask; it has played a script."""
    with driver("r_submission.R", tmp_path_factory.mktemp("asked")) as line:
        line.play("total <- 5\nsquare <- function(x) x^2\nprint(total)", kind="script")
        yield line


def shape(line: Line, code: str) -> Shape:
    """The value of an expression, which must have one."""
    message = line.ask(code)
    assert message.pop("event") == "answer"
    answer = TypeAdapter(Answer).validate_python(message)
    assert answer.state == "value", answer
    assert answer.value is not None
    return answer.value


def as_played(cells: list[dict[str, Any]]) -> list[Played]:
    """The cells as values, which checks their form."""
    return [Played.model_validate({k: v for k, v in cell.items() if k != "event"}) for cell in cells]


# --- playing ------------------------------------------------------------------------------------------


def test_the_sample_runs_clean_from_first_to_last_cell(work: Line, tmp_path: Path) -> None:
    shutil.copytree(SAMPLE / "data", tmp_path / "data")
    notebook = json.loads((SAMPLE / "solution" / "sales_cleaning.ipynb").read_text())
    code = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    cells = work.play(*code)
    assert [cell.state for cell in as_played(cells)] == ["ran"] * len(code)
    assert "Total revenue: 4598" in text_of(cells[3])
    assert pictures(cells[5]) == 1
    by_region = Shape.model_validate(work.look("by_region")["value"])
    assert by_region.names[:2] == ("region_clean", "revenue")
    assert by_region.columns[1] == (1871, 938.5, 898, 890.5)
    assert work.end() == 0


def test_outputs_come_in_the_order_they_were_made(tidy: Line) -> None:
    (cell,) = tidy.play('1 + 1\ncat("to out\\n")\nmessage("to err")\nsystem("echo outside")\nx <- 3\n"last"')
    assert [o["kind"] for o in cell["outputs"]] == ["result", "stream", "result"]
    assert text_of(cell) == '[1] 2\nto out\nto err\noutside\n[1] "last"\n'


def test_a_script_prints_what_rscript_prints(work: Line) -> None:
    (cell,) = work.play("x <- 2\nx\ninvisible(7)\nplot(x)\ndata.frame(a = 1)", kind="script")
    assert text_of(cell, "stream") == "[1] 2\n  a\n1 1\n"
    assert pictures(cell) == 1


def test_a_table_is_shown_as_in_a_notebook(tidy: Line) -> None:
    (cell,) = tidy.play('data.frame(name = c("a", "bb"), n = 1:2)')
    assert text_of(cell, "result") == "  name n\n1 a    1\n2 bb   2\n"


def test_an_error_ends_its_cell_and_not_the_next(tidy: Line) -> None:
    cells = tidy.play('print(1)\nstop("no\nsense")\nprint(2)', "x <- (", "print(3)", "log(-1)")
    states = [(cell.state, cell.line) for cell in as_played(cells)]
    assert states == [("failed", 2), ("failed", 2), ("ran", None), ("ran", None)]
    assert cells[0]["error"] == "Error: no sense"
    assert text_of(cells[0], "stream", "result") == "[1] 1\n"
    assert "unexpected end of input" in cells[1]["error"]
    assert "Warning message in log(-1):\n“NaNs produced”" in text_of(cells[3], "stream")


def test_the_line_of_an_error_is_that_in_the_function(tidy: Line) -> None:
    (cell,) = tidy.play('check <- function(x) {\n  y <- x\n  stop("bad")\n}\n\ncheck(1)')
    assert (cell["line"], cell["error"]) == (3, "Error in check(1): bad")


@pytest.mark.parametrize(
    "code", ["repeat {}", "Sys.sleep(60)", "while (TRUE) print(1)", "repeat try(repeat {}, silent = TRUE)"]
)
def test_a_cell_that_does_not_end_is_stopped(work: Line, code: str) -> None:
    stopped = work.play(code, cell_s=0.5)
    assert [cell.state for cell in as_played(stopped)] == ["too long"]
    assert stopped[0]["seconds"] < 30
    assert sum(len(o["text"]) for o in stopped[0]["outputs"]) < 70_000
    assert [cell.state for cell in as_played(work.play("2"))] == ["ran"]


def test_an_interrupt_that_comes_late_ends_nothing(work: Line) -> None:
    """The clock interrupts from a process beside the driver, which may have ended the cell meanwhile."""
    assert [cell.state for cell in as_played(work.play("1"))] == ["ran"]
    for _ in range(3):
        os.kill(work.process.pid, signal.SIGINT)
        assert [cell.state for cell in as_played(work.play("2", "Sys.sleep(0.2)"))] == ["ran", "ran"]


def test_missing_packages_are_named_once(tidy: Line) -> None:
    cells = tidy.play("library(nosuchone)", "nosuchtwo::f(1)", "require(nosuchthree)\nlibrary(nosuchone)")
    assert tidy.missing == ["nosuchone", "nosuchtwo", "nosuchthree"]
    assert [cell["state"] for cell in cells] == ["failed"] * 3
    assert cells[0]["error"] == "Error in library(nosuchone): there is no package called ‘nosuchone’"


def test_the_tidyverse_is_its_parts(work: Line) -> None:
    cells = work.play(
        'suppressWarnings(library(tidyverse))\ntibble(a = 1:2) %>% mutate(b = str_to_upper("x")) %>% nrow()',
        'for (p in c("tidyverse", "stats")) library(p, character.only = TRUE)\nrequire(tidyverse)',
        "ggplot(mtcars, aes(mpg, cyl)) + geom_point()",
    )
    assert [cell["state"] for cell in cells] == ["ran"] * 3
    assert work.missing == []
    assert "[1] 2" in text_of(cells[0])
    assert pictures(cells[2]) == 1


def test_what_needs_somebody_is_harmless(work: Line, tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    cells = work.play(
        'setwd("/no/such/folder")\nsetwd("/usr")\ncat(getwd())',
        'install.packages("dplyr")\nView(mtcars)\nx <- readline("name? ")\nnchar(x)',
        'cat("before")\nquit()\ncat("after")',
        'setwd("below")\ncat(basename(getwd()))',
        "file.choose()",
    )
    assert [cell["state"] for cell in cells] == ["ran"] * 4 + ["failed"]
    first = text_of(cells[0])
    assert "(the folder /no/such/folder does not exist here; staying in " in first
    assert "(the folder /usr is none of the work's; staying in " in first
    assert first.endswith(str(tmp_path))
    assert "install.packages() does nothing here" in text_of(cells[1])
    assert text_of(cells[2]) == "before(quit() ends it here)\n"
    assert text_of(cells[3]) == "below"


def test_only_pictures_on_the_screen_count(work: Line) -> None:
    cells = work.play(
        "plot(1)\nhist(c(1, 2))",
        'png("own.png")\nplot(1)\ndev.off()\npdf("own.pdf")\nplot(1)\ninvisible(dev.off())',
        "par(mfrow = c(1, 2))\nplot(1)\nplot(2)",
        "x <- 1",
    )
    assert [pictures(cell) for cell in cells] == [2, 0, 1, 0]


def test_output_is_cut_and_says_so(tidy: Line) -> None:
    cells = tidy.play('cat(strrep("x", 200000))', "print(1)")
    assert text_of(cells[0]).endswith("(more output is left out)\n")
    assert len(text_of(cells[0])) < 66_000
    assert [cell["state"] for cell in cells] == ["ran", "ran"]


def test_files_from_windows_run(tidy: Line) -> None:
    cells = tidy.play("\ufeffx <- 1\r\nif (x > 0) {\r\n  print(x)\r\n}\r\n", kind="script")
    assert (cells[0]["state"], text_of(cells[0])) == ("ran", "[1] 1\n")


def test_infinite_recursion_ends_its_cell(tidy: Line) -> None:
    cells = tidy.play("f <- function(n) f(n + 1)\nf(1)", "1 + 1")
    assert [cell["state"] for cell in cells] == ["failed", "ran"]


def test_code_before_the_work_is_not_shown(tidy: Line) -> None:
    cells = tidy.play("given * 2", prelude='given <- 21\nprint("hidden")')
    assert text_of(cells[0]) == "[1] 42\n"


def test_the_work_cannot_break_its_driver(work: Line) -> None:
    hostile = """
closeAllConnections()
cat <- print <- paste0 <- json <- send <- function(...) stop("mine")
options(error = quote(stop("never")), warn = 2)
.Last <- function() stop("never")
sink("/dev/null")
sink()
rm(list = ls())
"""
    cells = work.play(hostile, "1 + 1", 'writeLines("{\\"event\\":\\"played\\"}")\nsystem("echo {}")')
    assert [cell["state"] for cell in cells] == ["ran"] * 3
    assert text_of(cells[1]) == "[1] 2\n"
    assert work.ask("6 * 7")["value"]["text"] == "42"
    assert work.end() == 0


# --- asking -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "kind", "type", "text"),
    [
        ("total + 1", "number", "numeric", "6"),
        ("0.1", "number", "numeric", "0.1"),
        ("1/3", "number", "numeric", "0.3333333333333333"),
        ("100000L", "number", "integer", "100000"),
        ("-Inf", "number", "numeric", "-inf"),
        ("NaN", "number", "numeric", "nan"),
        ("1+2i", "number", "complex", "1+2j"),
        ("TRUE", "truth", "logical", "true"),
        (r'"\u00e4\n\"\\"', "text", "character", 'ä\n"\\'),
        ("NA_character_", "nothing", "NA", ""),
        ("NULL", "nothing", "NULL", ""),
        ('as.Date("2024-02-03")', "text", "Date", "2024-02-03"),
        ('as.POSIXct("2024-02-03 04:05:06", tz = "UTC")', "text", "POSIXct", "2024-02-03T04:05:06Z"),
        ("ggplot2::ggplot(mtcars)", "picture", "gg", ""),
        ("y <- square(3)\ny + total", "number", "numeric", "14"),
    ],
)
def test_single_values(asked: Line, code: str, kind: str, type: str, text: str) -> None:
    found = shape(asked, code)
    assert (found.kind, found.type, found.text) == (kind, type, text)


def test_vectors_and_lists(asked: Line) -> None:
    named = shape(asked, "c(a = 1, b = NA)")
    assert (named.kind, named.names, named.items[1].kind) == ("list", ("a", "b"), "nothing")
    factor = shape(asked, 'factor(c("u", NA, "v"))')
    assert (factor.type, [i.text for i in factor.items]) == ("factor", ["u", "", "v"])
    assert shape(asked, "list(1, 'x', list())").kind == "list"
    keyed = shape(asked, "list(n = 1, deep = list(m = TRUE))")
    assert (keyed.kind, [k.text for k in keyed.keys]) == ("map", ["n", "deep"])
    assert keyed.items[1].items[0].text == "true"
    counts = shape(asked, 'table(c("a", "b", "a"))')
    assert (counts.type, counts.names, counts.items[0].text) == ("table", ("a", "b"), "2")
    assert shape(asked, "character()") == Shape(kind="list", type="character")
    assert shape(asked, "function(x) x + 1").kind == "other"
    assert shape(asked, "globalenv()").text == "<environment>"


def test_tables(asked: Line) -> None:
    found = shape(
        asked,
        'data.frame(d = as.Date("2024-01-02") + 0:2, x = c(1.5, NA, Inf), s = c("a", NA, "ä"), l = NA, '
        'f = factor("q"))',
    )
    assert (found.kind, found.type, found.names) == ("table", "data.frame", ("d", "x", "s", "l", "f"))
    assert found.columns == (
        ("2024-01-02", "2024-01-03", "2024-01-04"),
        (1.5, None, "inf"),
        ("a", None, "ä"),
        (None, None, None),
        ("q", "q", "q"),
    )
    matrix = shape(asked, 'matrix(1:4, 2, dimnames = list(NULL, c("p", "q")))')
    assert (matrix.names, matrix.columns) == (("p", "q"), ((1, 2), (3, 4)))
    grouped = shape(asked, "dplyr::group_by(dplyr::tibble(g = 1:2, v = 3:4), g)")
    assert (grouped.kind, grouped.columns) == ("table", ((1, 2), (3, 4)))


def test_values_are_bounded(asked: Line) -> None:
    many = shape(asked, "1:50000")
    assert many.cut
    assert 19_000 < len(many.items) <= 20_000
    wide = shape(asked, "as.data.frame(matrix(0, 20000, 10))")
    assert wide.cut
    assert len(wide.columns[0]) == 10_000
    nested = asked.ask("x <- list(); for (i in 1:60) x <- list(x); x")
    assert '"cut": true' in json.dumps(nested)


@pytest.mark.parametrize(
    ("code", "state", "error"),
    [
        ("square(", "error", "Error: the code cannot be read: unexpected end of input"),
        ("square(nix)", "error", "Error in square(nix): object 'nix' not found"),
        ('stop("own")', "error", "Error: own"),
        ("quit()", "error", "the expression ended its process"),
        ("tools::pskill(Sys.getpid(), 9L)", "error", "the expression ended its process"),
        ("repeat {}", "too long", "too long"),
        ("repeat try(repeat {}, silent = TRUE)", "too long", "too long"),
        ('system("sleep 60")', "too long", "too long"),
    ],
)
def test_expressions_without_a_value(asked: Line, code: str, state: str, error: str) -> None:
    answer = asked.ask(code, seconds=0.3 if state == "too long" else 5)
    assert (answer["state"], answer["error"], answer["value"]) == (state, error, None)


def test_an_expression_changes_nothing_for_the_next(asked: Line) -> None:
    answer = asked.ask('total <<- 99\ncat("printed\\n")\ntotal')
    assert (answer["value"]["text"], answer["printed"]) == ("99", "printed\n")
    assert asked.ask("total")["value"]["text"] == "5"


def test_no_child_is_left(asked: Line) -> None:
    for code in ("1", "quit()", 'system("sleep 60")'):
        asked.ask(code, seconds=0.3)
    pid = asked.process.pid
    # only the one that watches the clock
    children = Path(f"/proc/{pid}/task/{pid}/children")
    until(lambda: len(children.read_text().split()) == 1, 30, "the others are gone")
    assert asked.ask("total")["state"] == "value"


def test_looking_at_variables(asked: Line) -> None:
    assert asked.look("total")["value"] == {"kind": "number", "type": "numeric", "text": "5"}
    assert asked.look("absent") == {
        "event": "answer",
        "state": "missing",
        "value": None,
        "error": "",
        "printed": "",
    }
    assert asked.look("mean")["state"] == "missing"
