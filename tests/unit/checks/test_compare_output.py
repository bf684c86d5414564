from __future__ import annotations

import time

import pytest

from grading.checks.comparison.numbers import Tolerance
from grading.checks.comparison.outputs import compare_outputs, lines_of
from grading.domain.document import Output


def found(expected: str, got: str, rel: float = 1e-6) -> tuple[int, int]:
    compared = compare_outputs(
        (Output(kind="stream", text=expected),), (Output(kind="stream", text=got),), Tolerance(rel, 1e-9)
    )
    return compared.found, compared.expected


LOADING = """
Attaching package: ‘dplyr’

The following objects are masked from ‘package:stats’:

    filter, lag

── Attaching core tidyverse packages ──────── tidyverse 2.0.0 ──
✔ dplyr     1.1.4     ✔ readr     2.1.5
── Conflicts ───────────────── tidyverse_conflicts() ──
✖ dplyr::filter() masks stats::filter()
ℹ Use the conflicted package to force all conflicts to become errors
Rows: 500 Columns: 9
── Column specification ─────────────────────────────
Delimiter: ","
chr  (4): CustomerName, City
date (1): Date

ℹ Use `spec()` to retrieve the full column specification for this data.
"""
FRAME = "  region revenue orders\n1  North  1871.0      6\n2   East   938.5      4\n"


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        ("Total revenue: 4598\n", "total  Revenue:4598.0 \n\n"),
        ("[1] 24  6", "24 6"),
        ("[1] 1 2 3\n[4] 4 5", "[1] 1 2 3 4 5"),
        ("\x1b[1mRows: \x1b[22m100", "rows: 100"),
        ("mean 311.8333", "mean 311.83"),
        ("mean 311.83", "mean 311.8333333"),
        ("x 1e-05", "x 0.00001"),
        ("total 1,234.5", "total 1234.5"),
        ("-5", "\u22125"),
        ("'North'", '"North"'),
        ("a\nb", "start\na\nsomething else\nb\nend"),
        ("# A tibble: 2 × 2\n  <chr> <dbl>\na 1", "a 1"),
        (FRAME, "   revenue  orders region\n0   1871.0       6  North\n1    938.5       4   East\n"),
        (FRAME, "region revenue orders\nNorth 1871 6\nEast 938.5 4"),
        (f"{LOADING}\nRows: 4", "Rows: 4"),
        ("Rows: 4", f"{LOADING}\nRows: 4"),
    ],
)
def test_outputs_that_say_the_same(expected: str, got: str) -> None:
    have, wanted = found(expected, got)
    assert have == wanted > 0


@pytest.mark.parametrize(
    ("expected", "got", "share"),
    [
        ("Total: 4598", "Total: 5282", (0, 1)),
        ("Total: 4598", "4598", (0, 1)),
        ("pi 3.14159", "pi 3", (0, 1)),
        ("pi 3.14159", "pi 3.15", (0, 1)),
        ("a\nb\nc", "a\nc", (2, 3)),
        ("a\nb", "b\na", (1, 2)),
        ("a", "", (0, 1)),
        (f"{LOADING}\nRows: 4", LOADING, (0, 1)),
        (FRAME, "revenue orders region\n1871.0 6 North\n938.5 5 East", (2, 3)),
        (FRAME, "revenue region\n1871.0 North\n938.5 East", (0, 3)),
    ],
)
def test_outputs_that_differ(expected: str, got: str, share: tuple[int, int]) -> None:
    assert found(expected, got) == share


def test_of_plots_only_their_presence_counts() -> None:
    plot = Output(kind="display", text="plot without title", image=True)
    other = Output(kind="display", text="<Figure size 640x480>", image=True)
    text = Output(kind="stream", text="a")
    assert compare_outputs((plot, text), (text, other), Tolerance()).found == 2
    missing = compare_outputs((plot,), (text,), Tolerance())
    assert (missing.found, missing.expected, missing.missing) == (0, 1, "a picture")


def test_errors_are_no_output() -> None:
    assert lines_of("") == ()
    error = Output(kind="error", text="ValueError: 3")
    assert compare_outputs((error,), (), Tolerance()).expected == 0


@pytest.mark.parametrize("text", ["1 " * 50_000, "a 1\n" * 5_000, "<" * 9_000, "[1]" * 9_000, "1," * 9_000])
def test_hostile_output_takes_little_time(text: str) -> None:
    start = time.process_time()
    found(text, text + "x")
    assert time.process_time() - start < 2
