"""Which answers are equal: what is left out of code, and what must never be."""

from __future__ import annotations

import pytest

from grading.checks.kinds.code import Defines
from grading.checks.kinds.prose import Words
from grading.checks.kinds.runs import RunsClean
from grading.documents import set_apart
from grading.domain.document import Document
from grading.domain.rubric import Criterion, Rubric
from grading.similarity import Answer, Region, answers_of
from tests.unit.checks.samples import cell, notebook, script

EQUAL_PYTHON = [
    ("def f(x, seq):\n    return x", "def f( x,seq ) :\n\n  return (x) # done"),
    (
        "def f(x):\n    y = x + 1\n    return y",
        "def f(n):\n    'Adds one.'\n    total = n + 1\n    return total",
    ),
    ("a = 'it'", 'b = "it"'),
    ("print(1_000, 0x10, 1e3)", "print(1000, 16, 1000.0)"),
    ("import numpy as np\nprint(np.mean([1, 2]))", "import numpy as n\nprint(n.mean([1, 2,]))"),
    ("x = [i * 2 for i in range(3)]", "ys = [value * 2 for value in range(3)]"),
    ("if (a > 1):\n    print(a)", "if a > 1:\n        print(a);"),
    (
        "def f(n):\n    return 1 if n < 2 else n * f(n - 1)",
        "def g(k):\n    return 1 if k < 2 else k * g(k - 1)",
    ),
    (
        "def f(d):\n    for b in d:\n        print(b)\ndef g(d):\n    for b in d:\n        print(b)",
        "def f(d):\n    for x in d:\n        print(x)\ndef g(e):\n    for i in e:\n        print(i)",
    ),
    ("name = 'x'\nprint(f'{name} is {1}')", 'who = "x"\nprint(f"{who} is {1}")'),
    ("with open('a') as f:\n    print(f)", "with open('a') as g:\n    print(g)"),
    ("f = lambda x: x + 1", "h = lambda value: value + 1"),
]
DIFFERENT_PYTHON = [
    ("print(1)", "print(2)"),
    ("print(1)", "print(1.0)"),
    ("print('a')", "print('b')"),
    ("print('a b')", "print('a  b')"),
    ("print(a - b)", "print(a + b)"),
    ("if a:\n    print(1)\n    print(2)", "if a:\n    print(1)\nprint(2)"),
    ("sorted(xs)", "reversed(xs)"),
    ("import numpy as np\nnp.sum(x)", "import pandas as np\nnp.sum(x)"),
    ("print((1))", "print((1,))"),
    ("xs.append(1)", "xs.extend(1)"),
    ("f(a=1)", "f(b=1)"),
    ("def f(x, y):\n    return x - y", "def f(x, y):\n    return y - x"),
    ("print(sales)", "print(customers)"),
    ("x = x + 1", "y = x + 1"),
    ("a = 1\nb = 2\nprint(a)", "a = 1\nb = 2\nprint(b)"),
    ("(a + b) * c", "a + b * c"),
    ("def f(x):\n    return x", "def f(x):\n    return x\n  )"),
]
EQUAL_R = [
    ("m <- mean(df$price)  # the mean", "average = mean( df$price )"),
    ("f <- function(x) { x + 1 }", "plus_one <- function(value) value + 1"),
    ('read.csv("a.csv")', "read.csv('a.csv')"),
    ("head(df, 1000)", "head(df, 1e3)"),
    ("for (i in 1:3) { print(i) }", "for (row in 1:3) print(row)"),
    ("x <- c(1, 2)\nx <- x * 2\nsum(x)", "y <- c(1, 2)\ny <- y * 2\nsum(y)"),
    ("df %>%\n  filter(a > 1)", "df %>% filter(a > 1)"),
]
DIFFERENT_R = [
    ("m <- mean(df$price)", "m <- mean(df$cost)"),
    ("m <- mean(x)", "m <- median(x)"),
    ("df %>% mutate(total = a)", "df %>% mutate(sum = a)"),
    ("head(df, 5L)", "head(df, 5)"),
    ("x[1, ]", "x[1]"),
    ("stats::filter(x)", "dplyr::filter(x)"),
    ("lm(y ~ x)", "lm(x ~ y)"),
    ("price <- 3\ndf$price > 2\nfilter(df, price > 2)", "p <- 3\ndf$price > 2\nfilter(df, p > 2)"),
]


def key(source: str, language: str = "python", rubric: Rubric | None = None) -> str:
    return only(script(source, language=language, path="work.py"), rubric=rubric).key


def only(*documents: Document, rubric: Rubric | None = None, tests: tuple[str, ...] = ()) -> Answer:
    (answer,) = answers_of(documents, rubric or of(), tests).values()
    return answer


def of(**fields: object) -> Rubric:
    return Rubric(
        criteria=(Criterion.model_validate({"id": "code", "title": "Code", "points": 1, **fields}),)
    )


@pytest.mark.parametrize(("one", "other"), EQUAL_PYTHON)
def test_equal_programs_in_python_have_one_key(one: str, other: str) -> None:
    assert key(one) == key(other) != ""


@pytest.mark.parametrize(("one", "other"), DIFFERENT_PYTHON)
def test_other_answers_in_python_have_other_keys(one: str, other: str) -> None:
    assert key(one) != key(other)


@pytest.mark.parametrize(("one", "other"), EQUAL_R)
def test_equal_programs_in_r_have_one_key(one: str, other: str) -> None:
    assert key(one, "r") == key(other, "r") != ""


@pytest.mark.parametrize(("one", "other"), DIFFERENT_R)
def test_other_answers_in_r_have_other_keys(one: str, other: str) -> None:
    assert key(one, "r") != key(other, "r")


def test_names_that_checks_and_tests_look_for_count() -> None:
    one, other = "def search(x):\n    return x", "def find(x):\n    return x"
    assert key(one) == key(other)
    asked = of(checks=(Defines(any_of=("search",)),))
    assert key(one, rubric=asked) != key(other, rubric=asked)
    tested = [only(script(each, language="python"), tests=("search(3)",)).key for each in (one, other)]
    assert tested[0] != tested[1]


def test_a_cell_may_be_split_and_names_go_on() -> None:
    whole = notebook(cell("x <- 1\nprint(x)"))
    parts = notebook(cell("value <- 1"), cell("print(value)"))
    assert only(whole).key == only(parts).key


def test_prose_is_its_words_and_nothing_written_has_no_key() -> None:
    said = [
        only(notebook(cell(text, kind="markdown"))) for text in ("Sales *rise*.", "sales rise", "Sales fall")
    ]
    assert said[0].key == said[1].key != said[2].key
    assert only(notebook(cell("x <- 1", added=()))) == Answer()


def test_the_place_is_where_the_checks_look() -> None:
    work = notebook(
        cell("a <- 1", place="Question 1"),
        cell("# Question 2.1\nb <- 2\n# Question 2.2\nd <- 3", place="Question 2"),
        cell("e <- 4", place="Question 3"),
    )
    by_check = of(checks=(Words(at_least=1, where="Question 2", part=r"2\.2"), RunsClean()))
    assert only(work, rubric=by_check).regions == (Region(document="work.ipynb", cell=2, first=3, last=4),)
    by_criterion = of(where="Question 3", checks=(Words(at_least=1),))
    assert [region.cell for region in only(work, rubric=by_criterion).regions] == [3]
    assert [region.cell for region in only(work).regions] == [1, 2, 3]
    assert only(work, rubric=of(where="Question 9")) == Answer()


def test_lines_of_the_starter_give_no_fingerprints() -> None:
    starter = script("def f(x):\n    total = 0\n    for one in x:\n        total += one\n", language="python")
    mine = script(starter.cells[0].source + "    return total / len(x)\n", language="python")
    (own,) = set_apart([mine], [starter])
    assert 0 < only(own).tokens < only(mine).tokens
    assert not only(own).fingerprints & only(starter).fingerprints


def test_hostile_code_is_bounded() -> None:
    deep = "f(" * 20_000 + ")" * 20_000
    assert key(deep) != key(deep + "\nx")
    assert key("\0\ud800 = 1", "r") != key("x = (((", "r")
