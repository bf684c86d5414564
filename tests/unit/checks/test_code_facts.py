from __future__ import annotations

import time

import pytest

from grading.checks.parsing.code_facts import CodeFacts
from grading.checks.parsing.parser import MAX_BYTES, code_facts


def calls(facts: CodeFacts) -> set[str]:
    return {c.full for c in facts.calls}


def made(facts: CodeFacts) -> set[str]:
    return {d.name for d in (*facts.defines, *facts.arguments)}


def test_r_calls_pipes_and_operators() -> None:
    facts = code_facts("y <- dplyr::filter(a, b %in% c(1)) %>% f() |> g()\nsapply(x, str_squish)", "R")
    assert {"dplyr::filter", "c", "%in%", "%>%", "|>", "f", "g", "str_squish"} <= calls(facts)
    assert facts.errors == ()


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("x <- 1", "x"),
        ("x = 1", "x"),
        ("1 -> x", "x"),
        ("x <<- 1", "x"),
        ('assign("x", 1)', "x"),
        ("df$x <- 1", "x"),
        ('df[["x"]] <- 1', "x"),
        ('df[, "x"] <- 1', "x"),
        ("df$x[is.na(df$x)] <- 0", "x"),
        ('names(df) <- c("id", "x")', "x"),
        ("df %>% mutate(x = 1)", "x"),
        ("transmute(df, x = 1)", "x"),
        ("df |> summarise(x = n(), .groups = 'drop')", "x"),
        ("rename(df, x = old)", "x"),
        ('count(df, a, name = "x")', "x"),
        ('pivot_longer(df, a:b, names_to = "x")', "x"),
        ("dt[, x := 1]", "x"),
        ("`x` <- 1", "x"),
        ("x <- function(a) a", "x"),
        ("for (x in 1:3) print(x)", "x"),
    ],
)
def test_r_definitions(code: str, name: str) -> None:
    assert name in made(code_facts(code, "r"))


def test_r_settings_and_comparisons_define_nothing() -> None:
    found = made(code_facts("summarise(df, .groups = 'drop')\nx == 1\nmean(x, na.rm = TRUE)\nx[1] <- 2", "r"))
    assert not found & {".groups", "x", "na.rm"}


def test_names_in_comments_and_strings_do_not_count() -> None:
    facts = code_facts("# str_trim(x); y <- 1\nz <- 'str_squish(a)' # w <- 2\n", "r")
    assert calls(facts) == set()
    assert made(facts) == {"z"}
    assert facts.code_without_comments == "\nz <- 'str_squish(a)' \n"
    assert [s.name for s in facts.strings] == ["str_squish(a)"]


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("x = 1", "x"),
        ("x += 1", "x"),
        ("x: int = 1", "x"),
        ("if (x := f()): pass", "x"),
        ("a, (x, *b) = f()", "x"),
        ("def x(): pass", "x"),
        ("class x: pass", "x"),
        ("import pandas as x", "x"),
        ("for i, x in y: pass", "x"),
        ("with open('f') as x: pass", "x"),
        ("df['x'] = 1", "x"),
        ("df.loc[:, 'x'] = 1", "x"),
        ("df.x = 1", "x"),
        ("df = df.assign(x=1)", "x"),
        ("df.groupby('a').agg(x=('b', 'sum'))", "x"),
        ("df.rename(columns={'old': 'x'})", "x"),
        ("pd.DataFrame({'x': [1]})", "x"),
    ],
)
def test_python_definitions(code: str, name: str) -> None:
    assert name in made(code_facts(code, "python"))


def test_python_calls() -> None:
    facts = code_facts(
        "pd.read_csv('f')\n@cache\ndef f(): return sorted(x, key=len)\n[g(i) for i in x]", "python"
    )
    assert {"pd.read_csv", "cache", "sorted", "len", "g", "comprehension"} <= calls(facts)
    assert {c.name for c in facts.calls} >= {"read_csv"}


def test_an_annotation_alone_and_a_parameter_define_nothing() -> None:
    assert made(code_facts("x: int\nf = lambda y: y\ng(z=1)", "python")) == {"f"}


def test_notebook_magics_are_no_errors_and_lines_stay() -> None:
    facts = code_facts(
        "%matplotlib inline\n!pip install x\nfiles = !ls\nif 1:\n    %time y = f()\ndf?\nz = 1", "python"
    )
    assert facts.errors == ()
    assert {"files", "y", "z"} <= made(facts)
    assert next(d for d in facts.defines if d.name == "z").first == 7


def test_cell_magics_switch_the_language() -> None:
    assert "COUNT" in {c.name for c in code_facts("%%sql\nSELECT COUNT(*) FROM t", "python").calls}
    assert code_facts("%%bash\nls | wc", "python").errors == ()
    assert "x" in made(code_facts("%%time\nx = 1", "python"))
    assert code_facts("%%sql\nSELECT 1 AS a", "sql").defines[0].first == 2


def test_sql() -> None:
    facts = code_facts(
        "CREATE VIEW v AS WITH c AS (SELECT 1) SELECT ROUND(AVG(x), 2) AS mean_x, count(*) n FROM t "
        "LEFT JOIN u ON t.a = u.a GROUP BY a ORDER BY n -- SUM(q)",
        "sql",
    )
    assert facts.errors == ()
    assert {"ROUND", "AVG", "count", "LEFT JOIN", "GROUP BY", "ORDER BY"} <= calls(facts)
    assert "SUM" not in calls(facts)
    assert {"v", "c", "mean_x", "n"} <= made(facts)


@pytest.mark.parametrize(
    ("language", "code", "called", "defined"),
    [
        (
            "java",
            "class A { int n = 1; void m() { this.b.bar(); new Baz(); foo(2); } }",
            {"bar", "Baz", "foo"},
            {"A", "n", "m"},
        ),
        (
            "c",
            '#define M 1\nint *f(int x) { int a[3]; printf("g()"); return p->q(1); }',
            {"printf", "q"},
            {"M", "f", "a"},
        ),
        (
            "cpp",
            "struct S { int z; }; int f() { auto l = 1; std::sort(a, b); o.m(); }",
            {"sort", "m"},
            {"S", "z", "f", "l"},
        ),
        (
            "javascript",
            "const a = 1; let {b, c: d} = o; function f() { o.m(); } // z()",
            {"m"},
            {"a", "b", "d", "f"},
        ),
        ("typescript", "const h = (x: number): number => g(x); class K { p = 1 }", {"g"}, {"h", "K", "p"}),
    ],
)
def test_curly_languages(language: str, code: str, called: set[str], defined: set[str]) -> None:
    facts = code_facts(code, language)
    assert facts.errors == ()
    assert called <= {c.name for c in facts.calls}
    assert defined <= made(facts)
    assert "z" not in {c.name for c in facts.calls}
    assert "g" not in made(facts)


def test_errors_have_lines_and_unknown_languages_no_names() -> None:
    assert code_facts("x = 1\ny = (\n", "python").errors == (2,)
    facts = code_facts("f(x)", "fortran")
    assert not facts.parsed
    assert facts.calls == ()
    assert facts.code_without_comments == "f(x)"


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("r", "f(" * 100_000),
        ("r", "(" * 200_000),
        ("python", "a" + ".b()" * 100_000),
        ("python", "[" * 200_000),
        ("r", "names(" * 50_000 + "x" + ")" * 50_000 + ' <- "y"'),
    ],
)
def test_hostile_code_is_bounded(language: str, code: str) -> None:
    started = time.process_time()
    code_facts(code, language)
    assert time.process_time() - started < 5


def test_too_much_code_is_cut() -> None:
    facts = code_facts(f"x <- '{'a' * 92}'\n" * (MAX_BYTES // 100 + 10), "r")
    assert facts.cut
    assert len(facts.code_without_comments) <= MAX_BYTES
