"""Checks on how code is written: comments, descriptions, the length of functions, the style of names."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grading.checks.context import Context
from grading.checks.evaluate import evaluate, label_of
from grading.checks.kinds.code import Uses
from grading.checks.kinds.counts import Count
from grading.checks.kinds.style import Comments, Documented, FunctionLength, Naming
from grading.checks.scope import Scopes
from grading.domain.check import Check
from grading.domain.rubric import Criterion, Rubric
from tests.unit.checks.samples import cell, notebook, outcome, script

PYTHON = '''"""Shapes."""


class Shape:
    """Anything that has an area."""

    def area(self) -> float:
        raise NotImplementedError


class Circle(Shape):
    def __init__(self, r):
        self.r = r

    def area(self):
        """The area of the circle."""
        return 3 * self.r ** 2


class Disc(Circle):
    pass


def biggestShape(shapes):
    return max(shapes, key=lambda s: s.area())
'''
JAVA = """/** A shape. */
abstract class Shape { abstract double area(); }

class Square extends Shape {
    private double sideLength;
    /** The area of the square. */
    double area() { return sideLength * sideLength; }
}

class Tile extends Square { }
class Wall { }
"""


def python(source: str = PYTHON, added: list[int] | None = None):  # type: ignore[no-untyped-def]
    return script(source, path="shapes.py", language="python", added=added)


def java():  # type: ignore[no-untyped-def]
    return script(JAVA, path="Shape.java", language="java")


def test_two_subclasses_of_shape() -> None:
    for work in (python(), java()):
        assert outcome(Count(of="subclasses", base="Shape", at_least=2), work).earned == 1
        found = outcome(Count(of="subclasses", base="Shape", at_least=4), work)
        assert (found.earned, found.message) == (0.5, "2 subclasses of Shape; at least 4 are asked for")
    assert outcome(Count(of="subclasses", base="Wall", at_least=1), java()).earned == 0
    assert (
        outcome(
            Count(of="subclasses", at_least=2, at_most=2),
            python("class A(object): pass\nclass B(A): pass\nclass C(B): pass"),
        ).earned
        == 1
    )


@pytest.mark.parametrize(
    ("of", "count"), [("functions", 1), ("methods", 3), ("classes", 3), ("subclasses", 2)]
)
def test_definitions_are_counted_by_kind(of: str, count: int) -> None:
    check = Count.model_validate({"of": of, "at_least": count, "at_most": count})
    assert outcome(check, python()).earned == 1


def test_definitions_of_the_starter_are_not_the_students() -> None:
    own = [n for n, line in enumerate(PYTHON.split("\n"), start=1) if "Disc" in line or "pass" in line]
    assert outcome(Count(of="classes", at_least=1, at_most=1), python(added=own)).earned == 1
    assert (
        outcome(Documented(of="functions"), python(added=own)).message
        == "there is no function of your own here"
    )


def test_comments_are_the_students_own_and_say_something() -> None:
    source = (
        "# given\nx <- 1\n# read the orders\ny <- 2  # ok\n# z <- mean(y)\nw <- 3\n# now the\n# second half"
    )
    work = notebook(cell(source, added=range(3, 9)))
    found = outcome(Comments(at_least=4), work)
    assert (found.earned, found.message) == (0.5, "2 of at least 4 comments")
    assert found.location is not None
    assert found.location.line == 3
    assert outcome(Comments(at_least=3, words=1), work).earned == 1


def test_the_same_words_are_one_comment() -> None:
    source = "\n".join("# a nice comment\nx <- 1" for _ in range(10))
    assert outcome(Comments(at_least=10), notebook(cell(source))).earned == pytest.approx(0.1)


def test_a_comment_that_goes_on_the_starters_counts_with_its_own_lines() -> None:
    source = "# Task 1: load the data\n# because it is needed\nx <- 1"
    assert outcome(Comments(at_least=1, words=4), notebook(cell(source, added=[2, 3]))).earned == 1
    assert outcome(Comments(at_least=1, words=5), notebook(cell(source, added=[2, 3]))).earned == 0


def test_documented() -> None:
    found = outcome(Documented(of="classes"), python())
    assert (found.earned, found.message) == (
        pytest.approx(1 / 3),
        "1 of 3 classes with a description; Circle has none",
    )
    assert found.location is not None
    assert found.location.line == 11
    assert outcome(Documented(of="functions"), python()).earned == 0
    assert outcome(Documented(of="methods"), python()).earned == pytest.approx(1 / 3)
    assert outcome(Documented(of="methods"), java()).earned == pytest.approx(1 / 2)
    assert outcome(Documented(words=9), python()).earned == 0
    roxygen = notebook(cell("#' The mean without gaps.\nclean_mean <- function(x) mean(x)"))
    assert outcome(Documented(), roxygen).earned == 1


def test_function_length() -> None:
    long = "def long(x):\n" + "    x += 1\n" * 9 + "\n\ndef short(x):\n    return x\n"
    found = outcome(FunctionLength(at_most=5), python(long))
    assert (found.earned, found.message) == (0.5, "1 of 2 functions with at most 5 lines; long has 10")
    assert outcome(FunctionLength(at_most=10), python(long)).earned == 1
    assert outcome(FunctionLength(at_most=5), python("x = 1")).earned == 0
    # who fills in a function of the starter answers for its length
    assert outcome(FunctionLength(at_most=5), python(long, added=[2, 3, 4, 5, 6, 7, 8, 9, 10])).earned == 0


@pytest.mark.parametrize(
    ("check", "earned", "message"),
    [
        (
            Naming(functions="snake_case"),
            0.5,
            "1 of 2 names written as asked; biggestShape is not snake_case",
        ),
        (Naming(classes="PascalCase"), 1.0, "3 of 3 names written as asked"),
        (Naming(variables="snake_case"), 0.0, "there are no names of your own here"),
    ],
)
def test_naming_in_python(check: Check, earned: float, message: str) -> None:
    found = outcome(check, python())
    assert (found.earned, found.message) == (earned, message)


@pytest.mark.parametrize(
    ("language", "source", "check"),
    [
        (
            "python",
            "MAX_SIZE = 3\ni = 0\n_my_list = []\ndf['Total Sum'] = 1\nself.fooBar = 2\nimport numpy as NP",
            Naming(variables="snake_case"),
        ),
        (
            "r",
            "orders <- raw %>% mutate(TotalSum = a)\nprint.order_list <- function(x) x\ndf$ColName <- 1",
            Naming(variables="snake_case", functions="snake_case"),
        ),
        (
            "r",
            "clean.orders <- 1\nf.x <- function(a) a",
            Naming(variables="dotted.case", functions="dotted.case"),
        ),
        (
            "java",
            "class HtmlPage { static final int MAX_ROWS = 3; HtmlPage() {} void drawIt() { int nextOne; } }",
            Naming(variables="camelCase", functions="camelCase", classes="PascalCase"),
        ),
        (
            "typescript",
            "type Point = { x: number };\nconst topLeft = 1;\nfunction drawIt() {}\ninterface Shape {}",
            Naming(variables="camelCase", functions="camelCase", classes="PascalCase"),
        ),
        (
            "cpp",
            "#define MAX 3\nstruct Point { int x; };\nint main() { int row_count = 1; int *next_row; }",
            Naming(variables="snake_case", classes="PascalCase", functions="snake_case"),
        ),
        ("python", "größe_neu = 1\nüber_maß = 2", Naming(variables="snake_case")),
    ],
)
def test_names_that_are_right(language: str, source: str, check: Check) -> None:
    found = outcome(check, script(source, path="work", language=language))
    assert (found.earned, found.message) == (1.0, found.message)


@pytest.mark.parametrize(
    ("language", "source", "check", "name"),
    [
        ("python", "rowCount = 1", Naming(variables="snake_case"), "rowCount"),
        ("r", "row.count <- 1", Naming(variables="snake_case"), "row.count"),
        ("r", "RowCount = 1", Naming(variables="camelCase"), "RowCount"),
        ("java", "class html_page { }", Naming(classes="PascalCase"), "html_page"),
        ("javascript", "const row_count = () => 1", Naming(functions="camelCase"), "row_count"),
        ("c", "int RowCount = 1;", Naming(variables="snake_case"), "RowCount"),
    ],
)
def test_names_that_are_not(language: str, source: str, check: Check, name: str) -> None:
    found = outcome(check, script(source, path="work", language=language))
    assert found.earned == 0
    assert f"; {name} is not " in found.message


WORDS = st.lists(st.from_regex(r"[a-z]{2,6}", fullmatch=True), min_size=2, max_size=4)


@given(WORDS)
def test_a_name_of_several_words_fits_the_style_it_is_written_in_only(parts: list[str]) -> None:
    parts = ["q" + parts[0], *parts[1:]]  # not the name of a generic function of R
    written = {
        "snake_case": "_".join(parts),
        "camelCase": parts[0] + "".join(p.title() for p in parts[1:]),
        "PascalCase": "".join(p.title() for p in parts),
        "UPPER_CASE": "_".join(parts).upper(),
        "dotted.case": ".".join(parts),
    }
    for style, name in written.items():
        for other in written:
            check = Naming.model_validate({"functions": other})
            work = notebook(cell(f"{name} <- function(a) a"))
            assert outcome(check, work).earned == (style == other), (name, other)


@pytest.mark.parametrize(
    ("check", "label"),
    [
        (Comments(at_least=3), "at least 3 comments"),
        (Documented(), "definitions have a description"),
        (Documented(of="methods"), "methods have a description"),
        (FunctionLength(at_most=20), "functions of at most 20 lines"),
        (Naming(variables="snake_case"), "names are written as asked"),
        (Count(of="subclasses", base="Shape", at_least=2), "at least 2 subclasses of Shape"),
        (Count(of="classes", at_least=1), "at least 1 class"),
    ],
)
def test_what_such_checks_are_called(check: Check, label: str) -> None:
    assert label_of(check) == label


@pytest.mark.parametrize(
    "source",
    [
        "".join(f"class C{n + 1}(C{n}): pass\n" for n in range(2_000)),
        "df['a'] = 1;" * 5_000,
        "".join(f"name{n} = {n}\n" for n in range(5_000)),
        "".join(f"# Question {n}: look\n" for n in range(5_000)) + "x = 1",
    ],
    ids=["a chain of classes", "one long line", "many names", "many headings"],
)
def test_hostile_work_takes_no_time(source: str) -> None:
    checks = (
        Count(of="subclasses", base="C0", at_least=1),
        Naming(variables="snake_case", classes="PascalCase"),
        Comments(at_least=3),
        Uses(all_of=("f",), part="Question"),
    )
    rubric = Rubric(criteria=(Criterion(id="a", title="A", points=1, checks=checks),))
    context = Context(Scopes([python(source)]), rubric, Scopes(()))
    evaluate(Uses(all_of=("f",)), context)  # parses, which has bounds of its own
    began = time.process_time()
    for check in checks:
        evaluate(check, context)
    assert time.process_time() - began < 1.5
