"""The engine without a model on Java and other languages: their comments, their nouns, what is missing."""

from __future__ import annotations

import json
import re

import pytest

from grading.domain.document import Cell, Document
from grading.domain.evidence import CheckOutcome, CriterionEvidence, Evidence, TestOutcome
from grading.domain.jobs import Job, Material
from grading.domain.rubric import Criterion, Rubric
from grading.domain.stages import AnalysisOutput, FeedbackOutput
from tests.unit.stages.test_prompt import job
from workers.machine.engines.rules.engine import RulesEngine
from workers.machine.engines.rules.facts import Facts
from workers.machine.engines.rules.findings import remarks, remarks_on_tests
from workers.machine.stages import run_stage

ACCOUNT = """/**
 * An account whose balance never falls below its limit, because the bank lends no more than that.
 */
public class Account {
    private final double limit;
    protected double balance;

    /** Opens an account that may be overdrawn down to the limit. */
    public Account(double limit) {
        this.limit = limit;
    }

    /**
     * Takes money out, where there is enough of it.
     *
     * @param amount in euros
     */
    public boolean withdraw(double amount) {
        if (balance - amount < limit) {
            return false;
        }
        balance = balance - amount;
        return true;
    }
}
"""
SAVINGS = """/** An account that earns interest, and therefore cannot be overdrawn. */
public class Savings extends Account {
    /** Opens one with nothing in it. */
    public Savings() {
        super(0);
    }

    /** Adds the interest of a year to the balance. */
    public void earn(double rate) {
        balance = balance + Math.round(balance * rate);
    }
}
"""
RUBRIC = Rubric(
    criteria=(
        Criterion(id="code", title="Classes", points=10, description="Two classes share their code."),
        Criterion(id="documentation", title="Documentation", points=20, stage="feedback"),
    )
)
MATERIAL = Material(title="Bank accounts")


def script(path: str, source: str, language: str, added: tuple[int, ...] | None = None) -> Document:
    lines = tuple(range(1, source.count("\n") + 2)) if added is None else added
    cell = Cell(number=1, kind="code", language=language, source=source, added=lines)
    return Document(path=path, kind="script", language=language, cells=(cell,))


def java(strip: bool = False, added: tuple[int, ...] | None = None) -> tuple[Document, ...]:
    sources = {"Account.java": ACCOUNT, "Savings.java": SAVINGS}
    if strip:
        sources = {path: re.sub(r"/\*\*.*?\*/\n?", "", s, flags=re.DOTALL) for path, s in sources.items()}
    return tuple(script(path, source, "java", added) for path, source in sources.items())


def asked(stage: str, documents: tuple[Document, ...], **more: object) -> Job:
    values = {"rubric": RUBRIC, "material": MATERIAL, "evidence": Evidence()} | more
    return job(stage, documents=documents, **values)


def analysis(given: Job) -> AnalysisOutput:
    result = run_stage(given, RulesEngine(), "rules", "m", lambda count: None)
    assert result.ok, result.message
    return AnalysisOutput.model_validate(result.output)


def feedback(given: Job) -> FeedbackOutput:
    result = run_stage(given, RulesEngine(), "rules", "m", lambda count: None)
    assert result.ok, result.message
    return FeedbackOutput.model_validate(result.output)


def test_javadoc_is_documentation_in_the_students_own_words() -> None:
    whole, bare = (feedback(asked("feedback", java(strip=strip))) for strip in (False, True))
    assert whole.judgements[0].level == RUBRIC.criteria[1].highest
    assert "6 of your 6 classes and methods have a comment that explains them." in whole.judgements[0].reason
    assert bare.judgements[0].level == 0
    assert "No comment of yours explains what your classes and methods are for." in bare.judgements[0].reason
    assert "because the bank lends no more than that" in whole.reflection


def test_javadoc_that_came_with_the_task_is_not_the_students() -> None:
    own = tuple(
        n for n, line in enumerate(ACCOUNT.split("\n"), 1) if not line.strip().startswith(("/*", "*"))
    )
    given = asked("feedback", java(added=own)[:1])
    assert feedback(given).judgements[0].level == 0


COMMENTED = [
    ("java", "class A {\n  // adds one to it, since it counts\n  int f(int x) { return x + 1; }\n}"),
    ("c", "/* adds one to it, since it counts */\nint f(int x) { return x + 1; }"),
    ("cpp", "// adds one to it, since it counts\nint f(int x) { return x + 1; }"),
    ("javascript", "/** adds one to it, since it counts */\nfunction f(x) { return x + 1; }"),
    ("typescript", "// adds one to it, since it counts\nconst f = (x: number) => x + 1;"),
    ("python", 'def f(x):\n    """adds one to it, since it counts"""\n    return x + 1'),
    ("r", "#' adds one to it, since it counts\nf <- function(x) x + 1"),
    ("sql", "-- adds one to it, since it counts\nSELECT x + 1 FROM t;"),
]


@pytest.mark.parametrize(("language", "source"), COMMENTED, ids=[language for language, _ in COMMENTED])
def test_comments_count_in_every_language(language: str, source: str) -> None:
    bare = "\n".join(line for line in source.split("\n") if "adds one" not in line)
    said = [
        analysis(asked("analysis", (script("a", text, language),))).judgements[0].reason
        for text in (source, bare)
    ]
    assert "There are no comments." not in said[0]
    assert "There are no comments." in said[1]
    assert "adds one to it" in feedback(asked("feedback", (script("a", source, language),))).reflection


def test_code_that_was_commented_out_is_no_comment() -> None:
    source = "class A {\n  // int y = 3;\n  int f(int x) { return x + 1; }\n}"
    reason = analysis(asked("analysis", (script("a", source, "java"),))).judgements[0].reason
    assert "There are no comments." in reason


@pytest.mark.parametrize(
    "documents", [java(), java(strip=True), java(added=())], ids=["whole", "bare", "none"]
)
def test_a_java_work_hears_of_classes_and_methods_and_not_of_tables(documents: tuple[Document, ...]) -> None:
    outputs = (analysis(asked("analysis", documents)), feedback(asked("feedback", documents)))
    said = " ".join(json.dumps(output.model_dump(), default=str) for output in outputs).lower()
    said = said.replace('"cell":', "")  # the name of a field
    assert not re.findall(r"\b(?:columns?|tables?|data|cells?|notebooks?|plots?|rows?)\b", said)
    assert "method" in said


def test_work_on_tables_still_hears_of_tables() -> None:
    source = "import pandas as pd\nsales = pd.read_csv('a.csv')\nprint(sales.head())"
    assert "column" in feedback(asked("feedback", (script("a.py", source, "python"),))).practice


def test_java_that_does_not_parse_is_told_with_its_line() -> None:
    document = script("A.java", "class A {\n  int f( { return 1; }\n}", "java")
    found = {remark.title: remark for remark in remarks(Facts.of(asked("analysis", (document,))))}
    place = found["Syntax error"].location
    assert place is not None
    assert place.line == 2


def unmet(*outcomes: CheckOutcome) -> Job:
    criterion = Criterion(id="sum", title="Revenue", points=5, description="The total is right.")
    evidence = Evidence(criteria=(CriterionEvidence(criterion="sum", share=0.0, outcomes=outcomes),))
    documents = (script("a.py", "x = 1", "python"),)
    return asked("feedback", documents, rubric=Rubric(criteria=(criterion,)), evidence=evidence)


def test_what_to_develop_says_what_is_missing_and_not_what_would_be_right() -> None:
    message = "0 of 1 expected number found in the outputs"
    output = feedback(unmet(CheckOutcome(check="c", label="the total", earned=0, message=message)))
    assert output.develop[0] == f"Revenue: 'the total' is not met ({message})."
    assert "The total is right" not in json.dumps(output.model_dump(), default=str)


def test_a_check_on_a_pattern_is_called_by_its_label() -> None:
    message = r"“total\s*=\s*\d+” is missing"
    output = feedback(unmet(CheckOutcome(check="c", label="assigns the total", earned=0, message=message)))
    assert output.develop[0] == "Revenue: 'assigns the total' is not met."


@pytest.mark.parametrize(
    ("test", "compares"),
    [
        (TestOutcome(name="t", passed=False, input="f(1)", expected="2", got="3", show="everything"), True),
        (TestOutcome(name="t", passed=False, input="f(1)", got="3", show="input"), False),
        (TestOutcome(name="t", passed=False, show="name"), False),
        (TestOutcome(name="a test", passed=False, show="nothing"), False),
        (TestOutcome(name="a hidden test", passed=False, hidden=True, show="nothing"), False),
    ],
)
def test_only_who_sees_the_expected_value_is_told_to_compare_with_it(
    test: TestOutcome, compares: bool
) -> None:
    given = unmet(CheckOutcome(check="c", label="tests", earned=0, message="0 of 1", tests=(test,)))
    ((remark,), _) = remarks_on_tests(given)
    assert remark.advice is not None
    assert ("compare" in remark.advice.how) is compares


def test_no_reflection_is_missed_where_none_was_asked_for() -> None:
    rubric = Rubric(criteria=(RUBRIC.criteria[0],))
    whole, bare = (feedback(asked("feedback", java(strip=strip), rubric=rubric)) for strip in (False, True))
    assert "reflection questions" not in bare.reflection
    assert "room to say" not in whole.reflection


def test_a_criterion_on_documentation_quotes_the_documentation() -> None:
    outcome = CheckOutcome(check="c", label="has Javadoc", earned=1, message="6 of 6")
    evidence = Evidence(
        criteria=(CriterionEvidence(criterion="documentation", share=1.0, outcomes=(outcome,)),)
    )
    (judged,) = feedback(asked("feedback", java(), evidence=evidence)).judgements
    assert judged.quotes
    assert all("*" in quote.text for quote in judged.quotes)
