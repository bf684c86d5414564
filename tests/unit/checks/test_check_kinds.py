from __future__ import annotations

import pytest

from grading.checks import collect
from grading.checks.kind import CheckKind
from grading.checks.kinds.code import Avoids, CodeMatches, Defines, Uses
from grading.checks.kinds.combined import Alternatives, Ladder, Rung
from grading.checks.kinds.outputs import AllExecuted, HasOutput, NoErrors, OutputClose, OutputMatches
from grading.checks.kinds.prose import NoTodo, Words
from grading.domain.check import Check, check_kinds
from grading.domain.document import Output
from grading.domain.errors import AssignmentError
from grading.domain.patterns import compiled, matches
from grading.domain.rubric import Criterion, Rubric
from tests.unit.checks.samples import cell, notebook, outcome, script, shown


def test_every_kind_says_how_it_is_evaluated() -> None:
    assert all(issubclass(one, CheckKind) and "evaluate" in vars(one) for one in check_kinds().values())


def test_uses_says_what_is_found_and_missing() -> None:
    work = notebook(cell("# clean\nx <- str_to_title(str_trim(y))"))
    found = outcome(Uses(all_of=("str_trim", "str_to_title", "str_squish")), work)
    assert found.earned == pytest.approx(2 / 3)
    assert found.message == "uses str_trim and str_to_title; str_squish is missing"
    assert found.location is not None
    assert (found.location.cell, found.location.line) == (1, 2)


def test_uses_any_of_and_equivalents() -> None:
    work = notebook(cell("summarise(x)"))
    assert outcome(Uses(any_of=("a", "summarise")), work).earned == 1
    assert outcome(Uses(all_of=("summarize",)), work).earned == 0
    assert outcome(Uses(all_of=("summarize",)), work, equivalents={"summarize": ("summarise",)}).earned == 1


def test_qualified_names() -> None:
    r = notebook(cell("dplyr::filter(x)\nlag(x)"))
    assert outcome(Uses(all_of=("filter", "dplyr::filter", "dplyr::lag")), r).earned == 1
    assert outcome(Uses(all_of=("stats::filter",)), r).earned == 0
    assert outcome(Avoids(names=("stats::filter", "stats::lag")), r).earned == 1
    python = script("pd.read_csv('a')", path="a.py", language="python")
    assert outcome(Uses(all_of=("read_csv", "pd.read_csv")), python).earned == 1
    assert outcome(Uses(all_of=("np.read_csv",)), python).earned == 0


def test_only_added_lines_count() -> None:
    source = "x <- str_trim(a)\ny <- 1"
    assert outcome(Uses(all_of=("str_trim",)), notebook(cell(source, added=[2]))).earned == 0
    assert outcome(Defines(all_of=("x",)), notebook(cell(source, added=[2]))).earned == 0
    assert outcome(CodeMatches(all_of=("str_trim",)), notebook(cell(source, added=[2]))).earned == 0
    assert outcome(Defines(all_of=("y",)), notebook(cell(source, added=[2]))).earned == 1


def test_a_starter_statement_the_student_filled_counts_as_theirs() -> None:
    source = "clean <- raw %>%\n  mutate(\n    name = str_trim(a)\n  )"
    work = notebook(cell(source, added=[3]))
    assert outcome(Defines(all_of=("clean", "name")), work).earned == 1
    assert outcome(Avoids(names=("mutate",)), work).earned == 1  # the call itself was given


@pytest.mark.parametrize(
    "check",
    [
        Uses(any_of=("f",)),
        Avoids(names=("f",)),
        Defines(any_of=("x",)),
        CodeMatches(none_of=("f",)),
        HasOutput(),
        OutputMatches(all_of=("1",)),
        OutputClose(values=(1.0,)),
        NoErrors(),
        AllExecuted(),
        Words(at_least=1),
        NoTodo(),
        Alternatives(checks=(NoErrors(),)),
        Ladder(rungs=(Rung(when=(NoErrors(),), credit=1),), otherwise=0.5),
    ],
)
def test_nothing_added_earns_nothing(check: Check) -> None:
    found = outcome(check, notebook(cell("x <- f(1)", added=[], outputs=shown("1"), count=1)))
    assert found.earned == 0
    assert found.weight > 0
    assert found.message == "nothing was added here"


def test_comments_alone_are_no_code() -> None:
    work = notebook(cell("# I did it all", outputs=shown("1"), count=1))
    for check in (NoErrors(), AllExecuted(), HasOutput(), Avoids(names=("f",)), CodeMatches(none_of=("f",))):
        assert outcome(check, work).earned == 0


def test_where_finds_places_and_first_comments() -> None:
    work = notebook(
        cell("f()", place="Part 2 > Cleaning | Task 2.1: names"),
        cell("# Task 2.2\ng()"),
    )
    assert outcome(Uses(all_of=("f",)), work, where=r"task 2\.1\b").earned == 1
    assert outcome(Uses(all_of=("g",)), work, where=r"task 2\.1\b").earned == 0
    assert outcome(Uses(all_of=("g",), where=r"Task 2\.2"), work, where=r"Task 2\.1").earned == 1
    missing = outcome(NoErrors(), work, where=r"Task 9\b")
    assert (missing.earned, missing.message) == (0, "no cell or heading matches “Task 9”")


def test_sections_of_a_script() -> None:
    work = script("# Task 1: read\nx <- read_csv('a')\n# Task 2: clean\ny <- str_trim(x)\n")
    assert outcome(Uses(all_of=("str_trim",)), work, where="Task 2").earned == 1
    assert outcome(Uses(all_of=("str_trim",)), work, where="Task 1").earned == 0
    assert outcome(Uses(all_of=("str_trim",)), work, where="Task 3").earned == 0


def test_a_script_without_headings_counts_whole() -> None:
    work = script("x <- 1\ny <- str_trim(x)")
    found = outcome(Uses(all_of=("str_trim",)), work, where="Task 2")
    assert found.earned == 1
    assert found.location is not None
    assert found.location.line == 2


def test_files_limit_a_check() -> None:
    work = (script("f()", path="a.R"), script("g()", path="src/b.R"))
    assert outcome(Uses(all_of=("g",), files="b.R"), *work).earned == 1
    assert outcome(Uses(all_of=("f",), files="b.R"), *work).earned == 0
    assert outcome(Uses(all_of=("f",), files="*.py"), *work).message == "no file is named like *.py"


def test_code_matches_ignores_comments_and_sees_strings() -> None:
    work = notebook(cell("x <- 'At Risk' # paste(\ncase_when(\n  a ~ 1)"))
    assert outcome(CodeMatches(all_of=("At Risk",)), work).earned == 1
    assert outcome(CodeMatches(all_of=(r"paste\(",)), work).earned == 0
    assert outcome(CodeMatches(all_of=(r"case_when\(\s*a",)), work).earned == 1
    assert outcome(CodeMatches(all_of=("At Risk",), none_of=("case_when",)), work).earned == 0


def test_outputs_and_execution() -> None:
    work = notebook(
        cell("a", outputs=shown("1"), count=1), cell("b", count=2), cell("c"), cell("given", added=[])
    )
    assert outcome(HasOutput(), work).earned == pytest.approx(1 / 3)
    assert outcome(AllExecuted(), work).earned == pytest.approx(2 / 3)
    assert outcome(HasOutput(image=True), work).earned == 0
    picture = (Output(kind="display", image=True),)
    assert outcome(HasOutput(image=True), notebook(cell("p", outputs=picture))).earned == 1


def test_scripts_have_no_outputs_and_lose_nothing() -> None:
    checks = (AllExecuted(), HasOutput(), OutputClose(values=(1.0,)), OutputMatches(all_of=("1",)))
    for check in checks:
        found = outcome(check, script("x <- 1"))
        assert found.weight == 0
    rubric = Rubric(
        criteria=(
            Criterion(id="a", title="A", points=1, checks=checks),
            Criterion(id="b", title="B", points=1, checks=(*checks, Uses(all_of=("f",)))),
            Criterion(id="c", title="C", points=1),
        )
    )
    shares = [c.share for c in collect([script("f()")], rubric).criteria]
    assert shares == [None, 1.0, None]


def test_output_matches_without_colours() -> None:
    work = notebook(cell("x", outputs=shown("\x1b[1mRows:\x1b[22m 100")))
    assert outcome(OutputMatches(all_of=(r"Rows: 100",)), work).earned == 1
    assert outcome(OutputMatches(any_of=("Rows: 9", "nothing")), work).earned == 0


def test_output_close_to_values_and_to_the_solution() -> None:
    work = notebook(cell("x", place="Task 1", outputs=shown("[1] 3.1415\nn = 1,200 (7 %)")))
    assert outcome(OutputClose(values=(3.1416, 1200, 8)), work).earned == pytest.approx(2 / 3)
    solution = notebook(
        cell("other", place="Task 0", outputs=shown("99")),
        cell("x", place="Task 1", outputs=shown("[1] 3.14159\nn = 1200 and 6")),
    )
    found = outcome(OutputClose(where="Task 1"), work, solution=(solution,))
    assert found.earned == pytest.approx(2 / 3)
    assert outcome(OutputClose(), work).weight == 0  # nothing to compare with


def test_a_place_is_compared_as_a_whole() -> None:
    twice = [cell(c, place="Task 2", outputs=shown(said)) for c, said in (("a", "12"), ("b", "34"))]
    work, joined = notebook(*twice), notebook(cell("a; b", place="Task 2", outputs=shown("12\n34")))
    for mine, theirs in ((work, work), (joined, work), (work, joined)):
        assert outcome(OutputClose(), mine, solution=(theirs,)).earned == 1


def test_cells_without_a_place_go_in_order_also_after_silent_ones() -> None:
    work = notebook(cell("import x", count=1), cell("a", outputs=shown("12")), cell("b", outputs=shown("34")))
    assert outcome(OutputClose(), work, solution=(work,)).earned == 1
    told = notebook(cell("Text", kind="markdown", place="Task 1"), *work.cells)
    assert outcome(OutputClose(), work, solution=(told,)).earned == 1


def test_a_number_is_used_once() -> None:
    assert outcome(OutputClose(values=(5, 5)), notebook(cell("x", outputs=shown("5")))).earned == 0.5


def test_no_errors() -> None:
    failing = cell("stop()", outputs=(Output(kind="error", text="Error in f(): boom"),))
    found = outcome(NoErrors(), notebook(cell("x <- 1"), failing))
    assert found.earned == 0.5
    assert "boom" in found.message
    broken = outcome(NoErrors(), script("x <- (1\n"))
    assert broken.earned == 0
    assert "cannot be read as code" in broken.message


def test_words_count_only_the_students_prose() -> None:
    source = "### Question 8.1\nWhy does it matter to you?\nBecause **spaces** differ, don't they?"
    work = notebook(cell(source, kind="markdown", place="Question 8.1", added=[3]))
    found = outcome(Words(at_least=10), work, where=r"Question 8\.1")
    assert found.earned == pytest.approx(0.5)
    assert found.message == "5 words of at least 10"


def test_words_of_chinese_and_of_comments() -> None:
    chinese = notebook(cell("数据清洗很重要因为它", kind="markdown"))
    assert outcome(Words(at_least=5), chinese).earned == 1
    answer = "# Task 1\n# " + "because it matters " * 6 + "\nx <- 1 # not this"
    assert outcome(Words(at_least=18), script(answer)).earned == 1
    assert outcome(Words(at_least=5), script("# read the file\nx <- 1\n# plot it")).earned == 0


def test_no_todo() -> None:
    clean, left = cell("x <- 1"), cell("# TODO: read the data\ny <- 2", added=[2])
    assert outcome(NoTodo(), notebook(clean)).earned == 1
    assert outcome(NoTodo(), notebook(clean, left)).earned == 0.5
    assert outcome(NoTodo(), notebook(clean, cell("# Your code here:", added=[]))).earned == 0.5
    assert outcome(NoTodo(), notebook(cell("# todo el mundo"))).earned == 1
    assert outcome(NoTodo(extra=("_{3,}",)), notebook(cell("x <- ____"))).earned == 0


def test_alternatives_and_cap() -> None:
    check = Alternatives(checks=(Uses(all_of=("a", "b")), Uses(all_of=("c",), cap=0.4)))
    assert outcome(check, notebook(cell("a()"))).earned == 0.5
    assert outcome(check, notebook(cell("c()"))).earned == 0.4
    assert outcome(Uses(all_of=("c",), cap=0.3), notebook(cell("c()"))).earned == 0.3


def test_ladder_takes_the_first_rung_that_is_met() -> None:
    check = Ladder(
        rungs=(
            Rung(when=(Uses(all_of=("parse_date_time",)),), credit=1, note="all formats"),
            Rung(
                when=(Uses(all_of=("mdy",)), CodeMatches(none_of=("parse_date_time",))),
                credit=0.7,
                note="mdy",
            ),
        ),
        otherwise=0.1,
    )
    assert outcome(check, notebook(cell("parse_date_time(x); mdy(y)"))).message == "all formats"
    assert outcome(check, notebook(cell("mdy(y)"))).earned == 0.7
    assert outcome(check, notebook(cell("as.Date(y)"))).earned == 0.1


def test_a_ladder_that_only_lacks_outputs_does_not_apply_to_scripts() -> None:
    check = Ladder(rungs=(Rung(when=(HasOutput(), Uses(all_of=("f",))), credit=1),))
    assert outcome(check, script("f()")).weight == 0
    unmet = outcome(check, script("g()"))
    assert (unmet.earned, unmet.weight) == (0, 1)


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", r"(\w*\s*)*", "([a-z]+|x)*", "(", "a" * 2000, r"(?:a{1,100}){1,100}"]
)
def test_unsafe_patterns_are_refused(pattern: str) -> None:
    with pytest.raises(AssignmentError):
        compiled(pattern)


@pytest.mark.parametrize("pattern", [r"(?>\w+\s*)*", r"a+b+", r"(ab)+", r"(?:\d{1,3},)*\d+", "(?i)x"])
def test_safe_patterns_are_taken(pattern: str) -> None:
    assert compiled(pattern).pattern == pattern


def test_a_refused_pattern_costs_the_student_nothing() -> None:
    found = outcome(CodeMatches(all_of=("(a+)+$",)), notebook(cell("aaaa")))
    assert found.weight == 0
    assert "cannot be run" in found.message


def test_matches_sees_a_bounded_text() -> None:
    assert matches("x", "a" * 20_000 + "x") == []
    assert matches("b.", "a\nbc\nbd") == [(2, 2), (3, 3)]
