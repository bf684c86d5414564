"""The driver of testthat files, with the work in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.r_drivers import Line, driver

WORK = r"""
add <- function(a, b = 1) a + b
clean <- function(df) {
  df <- df[!is.na(df$x), , drop = FALSE]
  df$twice <- df$x * 2
  df
}
loud <- function() {
  message("hello")
  warning("careful")
  cat("out\n")
  invisible(7)
}
positive <- function(x) if (x < 0) stop("must be positive") else x
rest <- function() {
  stop(structure(class = c("empty_error", "error", "condition"), list(message = "e", call = NULL)))
}
counter <- function() {
  n <- 0
  function() {
    n <<- n + 1
    n
  }
}
Account <- setRefClass("Account", fields = list(balance = "numeric"), methods = list(
  deposit = function(x) {
    balance <<- balance + x
    invisible(.self)
  }
))
account <- Account$new(balance = 10)
member <- structure(list(name = "Ada"), class = "member")
print.member <- function(x, ...) cat("<member ", x$name, ">\n", sep = "")
df <- data.frame(g = factor(c("a", "b")), d = as.Date("2024-01-01") + 0:1, n = c(1.5, NA))
column <- function(data, name) eval(substitute(name), data)
apply_it <- function(f, x) f(x)
fit <- lm(mpg ~ cyl, mtcars)
slow <- function() repeat {}
again <- function(x) x
leave <- function() quit()
"""

HOSTILE = r"""
answer <- function() 41
expect_equal <- expect_true <- test_that <- function(...) invisible(TRUE)
`==` <- identical <- all.equal <- function(...) TRUE
all.equal.numeric <- compare.numeric <- function(...) TRUE
T <- FALSE
pi <- 3
forged <- function(class) {
  stop(structure(class = c(class, "error", "condition"), list(message = "f", call = NULL)))
}
signals <- function(class) {
  warning(structure(class = c(class, "warning", "condition"), list(message = "f", call = NULL)))
}
disguised <- function() structure(41, class = "POSIXlt")
q <- function() quit()
yes <- function() structure(list(0), class = "yes")
number <- function() structure(0, class = "yes")
boxed <- function() structure(new.env(), class = "yes")
length.yes <- nchar.yes <- dim.yes <- function(x, ...) c(3L, 3L)[seq_len(1L)]
sum.yes <- max.yes <- Summary.yes <- mean.yes <- median.yes <- function(..., na.rm = FALSE) 42
any.yes <- all.yes <- is.na.yes <- is.numeric.yes <- duplicated.yes <- function(...) TRUE
names.yes <- as.character.yes <- levels.yes <- toupper.yes <- function(x, ...) "b"
rev.yes <- sort.yes <- unique.yes <- as.list.yes <- unlist.yes <- as.vector.yes <- function(x, ...) 42
`[.yes` <- `[[.yes` <- `$.yes` <- function(x, ...) 42
as.numeric.yes <- as.double.yes <- as.integer.yes <- round.yes <- Math.yes <- function(x, ...) 42
`==.yes` <- `>.yes` <- Ops.yes <- all.equal.yes <- compare.yes <- function(...) TRUE
`+.yes` <- function(...) 42
setClass("Yes", representation(x = "numeric"))
setMethod("length", "Yes", function(x) 3L)
formal <- function() new("Yes", x = 1)
"""
SAID_BY_METHODS = (
    *(
        "expect_equal(length({0}), 3)",
        "expect_length({0}, 3)",
        "expect_equal(sum({0}), 42)",
        "expect_equal(max({0}), 42)",
    ),
    *(
        "expect_true(all({0}))",
        "expect_true(any({0}))",
        "expect_true(is.na({0}))",
        "expect_equal(mean({0}), 42)",
    ),
    *("expect_equal(names({0}), 'b')", "expect_equal(as.character({0}), 'b')", "expect_equal({0}[1], 42)"),
    *("expect_equal({0}[[1]], 42)", "expect_equal({0}$b, 42)", "expect_equal(sort({0}), 42)"),
    *("expect_equal(unique({0}), 42)", "expect_equal(as.numeric({0}), 42)", "expect_equal(round({0}), 42)"),
    *("expect_equal(nrow({0}), 3)", "expect_equal(median({0}), 42)", "expect_equal(rev({0}), 42)"),
    *("expect_true({0} == 42)", "expect_true({0} > 41)", "expect_true(isTRUE(all.equal({0}, 42)))"),
    *("expect_equal({0}, 42)", "expect_equal({0} + 0, 42)", "expect_equal(as.list({0}), 42)"),
)
"""What tests ask of a value; the methods that work has for its class answer as the test wishes."""


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    """The driver of the work, which has been played."""
    with driver("r_submission.R", tmp_path_factory.mktemp("work")) as line:
        (cell,) = line.play(WORK, kind="script")
        assert cell["state"] == "ran", cell
        yield line


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    """The driver of work that wants to pass without doing what is asked."""
    with driver("r_submission.R", tmp_path_factory.mktemp("hostile")) as line:
        (cell,) = line.play(HOSTILE, kind="script")
        assert cell["state"] == "ran", cell
        yield line


@pytest.fixture(scope="module")
def tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    """The driver of the tests; it takes one file after the other."""
    with driver("r_tests.R", tmp_path_factory.mktemp("tests")) as line:
        yield line


def states(tested: dict[str, dict[str, Any]]) -> dict[str, str]:
    """State by name."""
    return {name: test["state"] for name, test in tested.items()}


PASSES = {
    "vectors": "expect_equal(add(1, 2), 3); expect_identical(add(b = 5L, a = 1L), 6L)",
    "names": "expect_equal(again(c(a = 1, b = NA)), c(a = 1, b = NA)); expect_null(again(NULL))",
    "special": "expect_identical(again(c(NA, NaN, Inf, 0.1)), c(NA, NaN, Inf, 0.1))",
    "text": 'expect_identical(again(c("ä\\n", NA, "\\"")), c("ä\\n", NA, "\\""))',
    "lists": 'expect_equal(again(list(1L, b = list("x", NULL))), list(1L, b = list("x", NULL)))',
    "matrix": "m <- matrix(1:6, 2, dimnames = list(NULL, letters[1:3])); expect_identical(again(m), m)",
    "times": 't <- as.POSIXct("2024-01-02 03:04:05", tz = "UTC"); expect_equal(again(t), t)',
    "frames": 'r <- clean(data.frame(x = c(1, NA, 3))); expect_s3_class(r, "data.frame"); '
    "expect_equal(r$twice, c(2, 6)); expect_named(r, c('x', 'twice'))",
    "tibbles": "t <- dplyr::tibble(a = 1:2); expect_equal(again(t), t); expect_s3_class(again(t), 'tbl_df')",
    "variables": "expect_equal(nrow(df), 2); expect_equal(levels(df$g), c('a', 'b')); "
    'expect_true(is.na(df$n[2])); expect_equal(df$d[2], as.Date("2024-01-02"))',
    "conditions": 'expect_message(expect_warning(loud(), "careful"), "hello"); '
    'expect_error(positive(-1), "must be"); expect_error(rest(), class = "empty_error")',
    "printed": 'expect_output(suppressMessages(suppressWarnings(loud())), "out")',
    "invisible": "expect_invisible(suppressMessages(suppressWarnings(loud())))",
    "closures": "k <- counter(); k(); expect_equal(k(), 2); expect_type(k, 'closure')",
    "objects": "account$deposit(5); expect_equal(account$balance, 15); account$balance <- 2; "
    'key <- "balance"; expect_equal(account[[key]], 2); '
    "account[[key]] <- 3; expect_equal(account$balance, 3)",
    "classes": 'expect_s3_class(member, "member"); expect_output(print(member), "<member Ada>")',
    "models": "expect_equal(round(fit$coefficients[[1]], 2), 37.88)",
    "code": "expect_equal(column(data.frame(u = 1:3), u * 2), c(2, 4, 6))",
    "functions": "expect_equal(apply_it(sqrt, 16), 4); expect_equal(work$add(1), 2)",
    "no expectation": "stopifnot(add(1) == 2)",
}


def test_what_a_test_may_ask_of_the_work(tests: Line, work: Line) -> None:
    blocks = "\n".join(f'test_that("{name}", {{ {code} }})' for name, code in PASSES.items())
    head = 'library(testthat)\nsource("solution.R")\nsetwd("/somewhere")\n'
    tested = tests.run_tests(work, head + blocks)
    assert {name: test["message"] for name, test in tested.items() if test["state"] != "passed"} == {}
    assert list(tested) == list(PASSES)


def test_what_fails_says_why(tests: Line, work: Line) -> None:
    tested = tests.run_tests(
        work,
        """
limit <- 4
test_that("wrong", { expect_equal(add(1, 2), limit); expect_true(add(1) > 5) })
test_that("breaks", positive(-1))
test_that("unknown", nosuch(1))
test_that("later", skip("not now"))
test_that("lambda", apply_it(function(x) x, 1))
test_that("left", expect_equal(leave(), 1))
test_that("fine", expect_true(TRUE))
""",
    )
    assert states(tested) == {
        "wrong": "failed",
        "breaks": "error",
        "unknown": "error",
        "later": "skipped",
        "lambda": "error",
        "left": "error",
        "fine": "passed",
    }
    assert "add(1, 2) not equal to `limit`" in tested["wrong"]["message"]
    assert "add(1) > 5 is not TRUE" in tested["wrong"]["message"]
    assert "must be positive" in tested["breaks"]["message"]
    assert 'could not find function "nosuch"' in tested["unknown"]["message"]
    assert "cannot be given to the work" in tested["lambda"]["message"]
    assert "the work ended itself" in tested["left"]["message"]


def test_an_endless_test_costs_only_itself(tests: Line, work: Line) -> None:
    blocks = """
test_that("theirs", slow())
test_that("ours", repeat {})
test_that("next", expect_equal(add(1), 2))
"""
    tested = tests.run_tests(work, blocks, seconds=0.5)
    assert states(tested) == {"theirs": "too long", "ours": "too long", "next": "passed"}


def test_groups_have_their_names(tests: Line, work: Line) -> None:
    blocks = """
describe("add", {
  it("adds", expect_equal(add(1, 1), 2))
  it("differs", expect_equal(add(1, 1), 3))
})
"""
    tested = tests.run_tests(work, blocks)
    assert sorted(test["state"] for test in tested.values()) == ["failed", "passed"]
    assert all("add" in name and ("adds" in name or "differs" in name) for name in tested)


@pytest.mark.parametrize(
    ("source", "state"),
    [
        ("expect_equal(add(1), 2)\nstopifnot(add(2) == 3)", "passed"),
        ("expect_equal(add(1), 2)\nexpect_equal(add(1), 3)\nexpect_true(TRUE)", "failed"),
        ("stopifnot(add(1) == 3)", "error"),
        ("repeat {}", "too long"),
        ("x <- (", "error"),
    ],
)
def test_a_file_without_blocks_is_one_test(tests: Line, work: Line, source: str, state: str) -> None:
    assert states(tests.run_tests(work, source, seconds=0.4 if state == "too long" else 20)) == {
        "test_work.R": state
    }


def test_the_work_cannot_change_what_a_test_means(tests: Line, hostile: Line) -> None:
    tested = tests.run_tests(
        hostile,
        """
test_that("equal", expect_equal(answer(), 42))
test_that("same", expect_true(answer() == 42))
test_that("identical", expect_true(identical(answer(), 42)))
test_that("near", expect_true(isTRUE(all.equal(answer(), 42))))
test_that("disguised", expect_equal(disguised(), 42))
test_that("skip", { forged("skip"); expect_true(FALSE) })
test_that("success", { forged(c("expectation_success", "expectation")); expect_true(FALSE) })
test_that("quiet", { suppressWarnings(signals("skip")); expect_true(FALSE) })
test_that("constants", { expect_true(T); expect_gt(pi, 3.1) })
""",
    )
    assert {name for name, test in tested.items() if test["state"] in ("passed", "skipped")} == {"constants"}
    assert len(tested) == 9
    # what is masked can still be reached by its full name
    asked = tests.run_tests(hostile, 'test_that("masked", expect_error(work$q(), "ended itself"))')
    assert states(asked) == {"masked": "passed"}


@pytest.mark.parametrize("made", ["yes()", "number()", "boxed()", "formal()"])
def test_methods_of_the_work_do_not_say_what_its_values_are(tests: Line, hostile: Line, made: str) -> None:
    asked = [text.format(made) for text in SAID_BY_METHODS]
    blocks = "\n".join(f'test_that("{n}", {text})' for n, text in enumerate(asked))
    tested = tests.run_tests(hostile, blocks)
    assert len(tested) == len(asked)
    assert [asked[int(name)] for name, test in tested.items() if test["state"] == "passed"] == []


def test_nothing_of_the_other_side_is_evaluated(tests: Line) -> None:
    """What a work's driver that was taken over may send does no harm to the tests."""
    replies = [
        {
            "value": {
                "t": "list",
                "v": [{"t": "character", "v": ["f", "g", "h"]}, {"t": "null"}],
                "a": {"names": {"t": "character", "v": ["functions", "values"]}},
            },
            "visible": True,
            "said": [],
            "printed": "",
        },
        {"value": {"t": "formula", "v": "stop('evaluated')"}, "visible": True, "said": [], "printed": ""},
        {
            "value": {
                "t": "handle",
                "id": 1,
                "fun": False,
                "class": ["expectation_success", "numeric_version"],
            },
            "visible": True,
            "said": [],
            "printed": "",
        },
        {
            "value": {"t": "handle", "package": "base", "name": "quit"},
            "visible": True,
            "said": [],
            "printed": "",
        },
    ]
    source = """
test_that("code", expect_true(is.call(f())))
test_that("handle", expect_identical(class(g()), "grader_handle"))
test_that("function", expect_error(h(), "unknown type"))
"""
    file = {"path": "test_work.R", "source": source, "seconds": 5}
    tests.send(do="test", module="work", file=file)
    tested = []
    while (message := tests.receive())["event"] != "tests done":
        if message["event"] == "remote":
            tests.send(do="remote", body=replies.pop(0))
        else:
            tested.append((message["name"], message["state"], message["message"]))
    assert tested == [("code", "passed", ""), ("handle", "passed", ""), ("function", "passed", "")]


def test_it_ends_when_asked(tmp_path: Path) -> None:
    with driver("r_tests.R", tmp_path) as line:
        assert line.end() == 0
