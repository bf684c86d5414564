"""Comments, documentation and structure of code, by its grammar, in every language that is read."""

from __future__ import annotations

import time

import pytest

from grading.checks.parsing.code_facts import Definition
from grading.checks.parsing.parser import MAX_BYTES, code_facts
from grading.checks.scope import Scopes
from grading.domain.document import Cell, Document

JAVA = """/**
 * A shape with an area.
 *
 * @author nobody
 */
public abstract class Shape implements Comparable<Shape> {
    // the sides are kept
    // in centimetres
    private double side; // never negative

    // side = side * 2;
    /** Computes {@code area} from the sides. */
    @Override
    public double area(int n) {
        for (int i = 0; i < n; i++) {
            if (i > 2) { return 1; } else if (i > 1) { while (true) { n++; } } else { n--; }
        }
        return side;
    }

    public Shape(double side) { this.side = side; }
}

class Square extends Shape { }
"""


def named(source: str, language: str, name: str) -> Definition:
    return next(d for d in code_facts(source, language).definitions if d.name == name)


def test_java_has_its_javadoc_classes_methods_and_constructors() -> None:
    facts = code_facts(JAVA, "java")
    assert [(d.kind, d.name, d.parent, d.bases) for d in facts.definitions] == [
        ("class", "Shape", "", ("Comparable",)),
        ("method", "area", "Shape", ()),
        ("constructor", "Shape", "Shape", ()),
        ("class", "Square", "", ("Shape",)),
    ]
    shape, area, constructor, _ = facts.definitions
    assert (shape.documented, area.documented, constructor.documented) == (6, 5, 0)
    assert (area.first, area.last, area.lines, area.nesting) == (13, 19, 7, 3)


def test_a_run_of_line_comments_is_one_and_code_in_comments_is_told_from_words() -> None:
    comments = code_facts(JAVA, "java").comments
    assert [(c.first, c.last, c.doc, c.code, c.alone) for c in comments] == [
        (1, 5, True, False, True),
        (7, 8, False, False, True),
        (9, 9, False, False, False),
        (11, 11, False, True, True),
        (12, 12, True, False, True),
    ]
    assert comments[1].text == "the sides are kept\nin centimetres"
    assert comments[3].words == 0
    assert all(len(c.text.split("\n")) == c.last - c.first + 1 for c in comments)


@pytest.mark.parametrize(
    ("language", "source", "words"),
    [
        ("python", 'def f():\n    """Adds two numbers."""\n    return 1', 3),
        ("python", "# Adds two numbers.\ndef f():\n    return 1", 0),
        ("python", '@cache\ndef f():\n    r"Adds two numbers."\n    return 1', 3),
        ("r", "#' Adds two numbers.\n#' @export\nf <- function(x) x", 3),
        ("r", "# Adds two numbers.\nf = function(x) x", 3),
        ("c", "/* Adds two numbers. */\nint *f(int a) { return 0; }", 3),
        ("cpp", "/// Adds two numbers.\ntemplate <typename T>\nint f(T a) { return 0; }", 3),
        ("javascript", "/** Adds two numbers. */\nexport const f = (a) => a;", 3),
        ("javascript", "// Adds two numbers.\nfunction f(a) { return a }", 0),
        ("typescript", "/**\n * Adds two numbers.\n */\n\nfunction f(a: number) { return a }", 3),
        ("java", "/** Adds two numbers. */\n@Test\nint f() { return 1; }", 3),
        ("sql", "-- Adds two numbers.\nCREATE VIEW f AS SELECT 1;", 3),
    ],
)
def test_what_documents_a_definition(language: str, source: str, words: int) -> None:
    assert named(source, language, "f").documented == words


@pytest.mark.parametrize(
    ("language", "source", "kind", "parent", "bases"),
    [
        ("python", "class B(A, m.C, metaclass=D):\n    def f(self): pass", "class", "", ("A", "m.C")),
        ("r", 'B <- R6Class("B", inherit = A, public = list(f = function() 1))', "class", "", ("A",)),
        ("r", 'setClass("B", contains = c("A", "C"))', "class", "", ("A", "C")),
        ("cpp", "class B : public A, private C<int> { int f() { return 1; } };", "class", "", ("A", "C")),
        ("c", "typedef struct { int a; } B;", "class", "", ()),
        ("javascript", "class B extends A { f() {} }", "class", "", ("A",)),
        ("typescript", "abstract class B<T> extends A<T> implements C {}", "class", "", ("A", "C")),
        ("typescript", "interface B extends A {}", "interface", "", ("A",)),
        ("java", "enum B implements A { X }", "class", "", ("A",)),
    ],
)
def test_classes(language: str, source: str, kind: str, parent: str, bases: tuple[str, ...]) -> None:
    found = named(source, language, "B")
    assert (found.kind, found.parent, found.bases) == (kind, parent, bases)


@pytest.mark.parametrize(
    ("language", "source", "name", "kind", "parent"),
    [
        ("python", "class B:\n    def __init__(self): pass", "__init__", "constructor", "B"),
        ("python", "def g():\n    def f(): pass", "f", "function", "g"),
        ("cpp", "int B::f() { return 1; }", "f", "method", "B"),
        ("cpp", "B::B() {}", "B", "constructor", "B"),
        ("javascript", "class B { static f = () => 1; }", "f", "method", "B"),
        ("typescript", "class B { f = () => 1; }", "f", "method", "B"),
        ("javascript", "class B { constructor() {} }", "constructor", "constructor", "B"),
        ("r", 'setMethod("f", "B", function(x) 1)', "f", "method", "B"),
        ("r", "function(x) 1 -> g\nf <- function(y) 2", "f", "function", ""),
        ("java", "class A { class B { void f() {} } }", "f", "method", "A.B"),
    ],
)
def test_functions_and_methods(language: str, source: str, name: str, kind: str, parent: str) -> None:
    found = named(source, language, name)
    assert (found.kind, found.parent) == (kind, parent)


@pytest.mark.parametrize(
    ("language", "comment", "code"),
    [
        ("python", "# x = load(path)", True),
        ("python", "# for x in y:\n#     print(x)", True),
        ("python", "# Note: the total", False),
        ("python", "# Revenue (total)", False),
        ("python", "# returns", False),
        ("r", "# df <- read.csv('a')", True),
        ("r", "# mean of x", False),
        ("java", "// int x = 3;", True),
        ("java", "// see below", False),
        ("java", "/* total(); */", True),
        ("javascript", "// console.log(x)", True),
        ("javascript", "// the result (rounded)", False),
        ("c", '// printf("x");', True),
        ("sql", "-- SELECT a FROM b", True),
        ("sql", "-- the totals from last year", False),
    ],
)
def test_code_that_was_commented_out(language: str, comment: str, code: bool) -> None:
    assert [c.code for c in code_facts(comment, language).comments] == [code]


@pytest.mark.parametrize("source", ["/**/ class A {}", "/** */ class A {}", "// \nclass A {}"])
def test_empty_comments_say_nothing(source: str) -> None:
    facts = code_facts(source, "java")
    assert [(c.text, c.words) for c in facts.comments] == [("", 0)]
    assert facts.definitions[0].documented == 0


def test_words_and_code_below_each_other_are_apart() -> None:
    facts = code_facts("# why it is so\n# x = load(path)\n# and what follows\ny = 1", "python")
    assert [(c.first, c.last, c.code) for c in facts.comments] == [(1, 1, False), (2, 2, True), (3, 3, False)]


def test_only_the_students_own_comments_are_a_pieces() -> None:
    source = "# Task 1: add\n# because of rounding\ndef f():\n    '''Given.'''\n    return 1  # mine\n"
    cell = Cell(number=1, kind="code", source=source, added=(2, 5), language="python")
    document = Document(path="a.py", kind="script", language="python", cells=(cell,))
    (piece,) = Scopes((document,)).find().pieces
    assert [(c.first, c.text) for c in piece.comments] == [(2, "because of rounding"), (5, "mine")]
    assert [(d.name, d.documented) for d in piece.definitions] == [("f", 0)]


@pytest.mark.parametrize(
    ("language", "source"),
    [
        ("javascript", "x = () => { " * 30_000),
        ("r", "x <- function(x) " * 30_000),
        ("python", "# x = f(1)\n" * 45_000),
        ("java", "class A" + "a" * 100 + " { " + "void f() {} " * 10_000),
        ("java", "/** a */\n" + "int f() {}\n" * 7_500),
        ("java", "/** a */ int f() {}\n" * 7_500),
    ],
)
def test_hostile_code_stays_quick(language: str, source: str) -> None:
    started = time.process_time()
    code_facts(source[:MAX_BYTES], language)
    assert time.process_time() - started < 2.5
