from __future__ import annotations

import time

import pytest

from grading.execution.path_repair import beside, places_of, repair
from grading.execution.values import CodeLanguage

PLACES = places_of(["data/sales.csv", "data/big table.xlsx", "extra.txt"])


def repaired(source: str, language: CodeLanguage = "python") -> str:
    return repair(source, language, PLACES)[0]


@pytest.mark.parametrize(
    ("written", "run"),
    [
        (r"read_csv('C:\\Users\\me\\sales.csv')", 'read_csv("data/sales.csv")'),
        (r"read_csv('C:\Users\me\sales.csv')", 'read_csv("data/sales.csv")'),
        (r"read_csv(r'C:\Users\me\sales.csv')", 'read_csv("data/sales.csv")'),
        ('read_csv("~/Downloads/Sales.CSV")', 'read_csv("data/sales.csv")'),
        ('read_csv("/content/drive/sales.csv", sep=";")', 'read_csv("data/sales.csv", sep=";")'),
        ('read_csv("../../x/sales.csv")', 'read_csv("data/sales.csv")'),
        ('read_csv("../sales.csv")', 'read_csv("data/sales.csv")'),
        ('read_csv("Sales.csv")', 'read_csv("data/sales.csv")'),
        ('open("/tmp/x/extra.txt")', 'open("extra.txt")'),
        ('read_excel("~/big table.xlsx")', 'read_excel("data/big table.xlsx")'),
        (r"os.chdir('C:\\Users\\me')", 'os.chdir(".")'),
        ("os.chdir( '/content' )", 'os.chdir( "." )'),
    ],
)
def test_python_paths_that_lead_nowhere(written: str, run: str) -> None:
    assert repaired(written) == run


@pytest.mark.parametrize(
    "written",
    [
        'read_csv("sales.csv")',
        'read_csv("data/sales.csv")',
        'read_csv("./data/sales.csv")',
        'read_csv("../data/sales.csv")',
        'read_csv("/data/sales.csv")',
        'read_csv("https://example.org/sales.csv")',
        'read_csv("C:/me/other.csv")',
        'read_csv(f"{folder}/sales.csv")',
        'print("see and/or sales.csv")',
        'x = b"/tmp/sales.csv"',
        '# read_csv("C:/me/sales.csv")',
        'os.chdir("data")',
        'os.chdir(".")',
    ],
)
def test_what_stays_in_python(written: str) -> None:
    assert repair(written, "python", PLACES) == (written, ())


@pytest.mark.parametrize(
    ("written", "run"),
    [
        ("read.csv('C:/Users/me/sales.csv')", 'read.csv("data/sales.csv")'),
        (r'read.csv("C:\\Users\\me\\sales.csv")', 'read.csv("data/sales.csv")'),
        (r'read_csv(r"(C:\Users\me\sales.csv)")', 'read_csv("data/sales.csv")'),
        ("read_csv('~/sales.csv') # '~/sales.csv'", "read_csv(\"data/sales.csv\") # '~/sales.csv'"),
        ("setwd('/Users/me/GitHub/x/data')", 'setwd(".")'),
        ('setwd(dir = "~/x")', 'setwd(dir = ".")'),
        ("`odd \" name` <- read.csv('/a/sales.csv')", '`odd " name` <- read.csv("data/sales.csv")'),
        ('x <- "it\\"s"; y <- "/a/sales.csv"', 'x <- "it\\"s"; y <- "data/sales.csv"'),
        ("read.csv('data/sales.csv')", "read.csv('data/sales.csv')"),
        ("setwd('data')", "setwd('data')"),
    ],
)
def test_r_paths(written: str, run: str) -> None:
    assert repaired(written, "r") == run


def test_lines_stay_where_they_are() -> None:
    source = 'a = """\nx\n"""\nb = read("/q/sales.csv")\r\nc = (\n  "/z/sales.csv"\n)'
    run, found = repair(source, "python", PLACES)
    assert run.count("\n") == source.count("\n")
    assert found == ((4, "/q/sales.csv", "data/sales.csv"), (6, "/z/sales.csv", "data/sales.csv"))


def test_the_assignments_file_is_meant_before_a_students_own() -> None:
    assert places_of(["sales.csv", "data/sales.csv"]) == {"sales.csv": "data/sales.csv"}
    assert places_of(["a/x.csv", "b/x.csv"]) == {}


@pytest.mark.parametrize("language", ["python", "r"])
@pytest.mark.parametrize(
    "source",
    [
        '"' * 99_999 + "sales.csv",
        r"\"" * 50_000 + "/sales.csv",
        "'\"`" * 40_000 + "sales.csv",
        'r"-' * 50_000 + "sales.csv",
        "(" * 100_000 + '"/sales.csv"',
        "setwd(" * 20_000 + '"x"',
        "\x00\x0c\u2028'/a/sales.csv'",
        "x = '''/sales.csv",
    ],
)
def test_hostile_text_takes_little_time(language: CodeLanguage, source: str) -> None:
    start = time.process_time()
    run, _ = repair(source, language, PLACES)
    assert run.count("\n") == source.count("\n")
    assert time.process_time() - start < 2


def test_a_submissions_folder_data_is_not_the_assignments() -> None:
    submitted = {"data/mine.csv": "1", "data/sales.csv": "2", "data/statistics.py": "3", "notes.txt": "4"}
    assert beside(submitted, {"data/sales.csv": "5"}) == {
        "data/sales.csv": "5",
        "./data/mine.csv": "1",
        "./data/statistics.py": "3",
        "notes.txt": "4",
    }
    places = places_of(beside(submitted, {"data/sales.csv": "5"}))
    written = 'read("data/mine.csv"); read("./data/mine.csv")'
    assert repair(written, "python", places) == (written, ())
    assert repair('read("~/x/mine.csv")', "python", places)[0] == 'read("./data/mine.csv")'
