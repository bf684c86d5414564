from __future__ import annotations

import json
from typing import Any

import pytest

from grading.assignments.legacy_import import Works, is_legacy, read_legacy_rubric
from grading.assignments.legacy_import.criteria import scaled
from grading.checks import collect
from grading.checks.kinds.combined import Ladder
from grading.checks.kinds.prose import Words
from grading.domain.document import Document, Output
from grading.domain.errors import AssignmentError
from tests.unit.checks.samples import cell, notebook


def source() -> dict[str, Any]:
    """A small rubric of the older kind that contradicts itself in several ways."""
    return {
        "assignment_info": {"title": "Rivers", "total_points": 60},
        "strict_scoring_rules": {"no_output_no_points": True, "template_only_max_percent": 10},
        "rubric_elements": {
            "running": {
                "weight": 0.2,
                "max_points": 10,
                "description": "Runs",
                "criteria": ["Uses the pipe", "Correct use of stringr (str_trim, str_sub, etc.)"],
                "deductions": {"template_only": "Template = 0 points"},
            },
            "cleaning": {
                "max_points": 20,
                "description": "Cleaning",
                "required_sections": {
                    "part2_clean": {
                        "points": 10,
                        "subtasks": {
                            "task_2_1_names": {
                                "points": 4,
                                "description": "Names",
                                "verification": ["str_trim(", "name_clean"],
                            },
                            "task_2_2_group": {
                                "points": 6,
                                "description": "Groups",
                                "verification": [
                                    "group_by(basin)",
                                    "summarize(",
                                    "Very Long",
                                    "\\\\d+",
                                    "%>%",
                                ],
                            },
                        },
                    },
                    "part3_dates": {
                        "points": 30,
                        "subtasks": {
                            "task_3_1_parse": {
                                "points": 20,
                                "verification": ["parsed"],
                                "accepts_functions": ["mdy", "parse_date_time"],
                                "grading": {"mdy_alone": "Partial credit (80%)"},
                            },
                            "task_3_2_flow": {"points": 20, "verification": ["flow_rate"]},
                        },
                    },
                },
            },
            "reflection": {
                "max_points": 10,
                "questions": {"question_8_1": {"points": 3}, "question_8_2": {"points": 1}},
            },
        },
        "autograder_sandbox": {
            "required_variables": ["rivers"],
            "flexible_column_matching": {"mappings": {"name": ["River_Name", "name"]}},
            "sections": {
                "part1_setup": {"points": 5, "functions": ["library"]},
                "part2_string": {
                    "points": 12,
                    "functions": ["summarise"],
                    "required_columns": ["name_clean", "extra"],
                },
                "part8_text": {"points": 10, "min_words_per_question": 5},
            },
        },
        "partial_credit_rules": {
            "part3_dates": {
                "mdy_alone": {
                    "condition_type": "all_of",
                    "patterns": ["\\bmdy\\s*\\(", "parsed"],
                    "not_patterns": ["parse_date_time"],
                    "multiplier": 0.5,
                    "priority": 3,
                    "explanation": "mdy alone",
                },
                "parse_date_time_both": {
                    "condition_type": "count_formats",
                    "formats": ["mdy", "dmy"],
                    "min_count": 2,
                    "multiplier": 1.0,
                    "priority": 1,
                    "explanation": "both formats",
                },
                "odd": {"condition_type": "telepathy", "multiplier": 0.1, "priority": 9},
                "bad": {"condition_type": "regex", "pattern": "(", "multiplier": 0.1, "priority": 9},
            }
        },
    }


def works(code: str, text: str) -> Works:
    """A solution of one cell, and a starter of one text."""
    solution = (notebook(cell(code, place=code.partition("\n")[0])),) if code else ()
    starter = (notebook(cell(text, kind="markdown", place=text.partition("\n")[0])),) if text else ()
    return Works(solution, starter)


def share(criterion: str, *documents: Document) -> float:
    rubric, _ = read_legacy_rubric(source())
    evidence = collect(documents, rubric).of(criterion)
    assert evidence is not None
    assert evidence.share is not None
    return evidence.share


def work(code: str, place: str) -> Document:
    return notebook(cell(code, place=place, count=1, outputs=(Output(kind="stream", text="done"),)))


def test_section_maxima_win_and_parts_are_scaled() -> None:
    rubric, _ = read_legacy_rubric(json.dumps(source()).encode())
    points = {c.id: c.points for c in rubric.criteria}
    assert points == {
        "running": 10,
        "task_2_1_names": 2,
        "task_2_2_group": 3,
        "task_3_1_parse": 7.5,
        "task_3_2_flow": 7.5,
        "question_8_1": 7.5,
        "question_8_2": 2.5,
    }
    assert rubric.max_points == 40
    assert {c.stage for c in rubric.criteria if c.id.startswith("question")} == {"feedback"}


def test_contradictions_are_plain_sentences() -> None:
    _, notes = read_legacy_rubric(source())
    text = "\n".join(notes)
    for said in (
        "total_points is 60, but the section maxima sum to 40",
        "running has weight 0.2, which would be 8 points, but max_points is 10",
        "cleaning has 20 points, but its parts sum to 40",
        "part3_dates has 30 points, but its subtasks sum to 40",
        "reflection has 10 points, but its parts sum to 4",
        "part2_clean has 10 points in the rubric and 12 in the autograder",
        "part1_setup is an autograder section with 5 points, but no section of the rubric holds it",
        "The subtasks ask for summarize, the autograder for summarise; both count.",
        "part2_string requires extra, which no subtask",
        "task_3_1_parse gives 80 % for mdy_alone, the partial credit rule mdy_alone gives 50 %",
        "allow up to 10 % for an unchanged template",
        "condition_type 'telepathy' is not understood",
        "partial_credit_rules.part3_dates.bad: the regular expression '(' is not valid",
    ):
        assert said in text
    assert all(note.endswith(".") for note in notes)


def test_a_file_without_contradictions_has_none() -> None:
    clean = {
        "rubric_elements": {
            "all": {
                "max_points": 4,
                "required_sections": {"part1_a": {"points": 4, "verification": ["f("]}},
            }
        }
    }
    rubric, notes = read_legacy_rubric(clean, works("# Part 1\nf(1)", ""))
    assert notes == ()
    assert rubric.criteria[0].id == "part1_a"


def test_subtasks_are_checked_in_their_place_only() -> None:
    code = "name_clean <- str_trim(x)"
    assert share("task_2_1_names", work(code, "Task 2.1: Names")) == 1
    assert share("task_2_1_names", work(code, "Task 2.10")) == 0
    assert share("task_2_1_names", work("# str_trim( name_clean", "Task 2.1")) == 0


def test_spellings_labels_and_arguments() -> None:
    code = 'x %>% group_by(year, basin) |> summarise(a = "VERY  long") |> filter(str_detect(b, "[0-9]+"))'
    assert share("task_2_2_group", work(code, "Task 2.2")) == 1


def test_outputs_are_a_third_where_the_file_is_strict() -> None:
    code = "name_clean <- str_trim(x)"
    unrun = notebook(cell(code, place="Task 2.1"))
    assert share("task_2_1_names", unrun) == pytest.approx(2 / 3)
    assert share("task_2_1_names", work("y <- 1", "Task 2.1")) == 0


def test_partial_credit_becomes_a_ladder() -> None:
    rubric, _ = read_legacy_rubric(source())
    criterion = next(c for c in rubric.criteria if c.id == "task_3_1_parse")
    ladder = next(c for c in criterion.checks if isinstance(c, Ladder) and len(c.rungs) == 2)
    assert [(r.credit, r.note) for r in ladder.rungs] == [(1.0, "both formats"), (0.5, "mdy alone")]
    place = "Task 3.1"
    for code, worth in (
        ('parsed <- parse_date_time(x, orders = c("mdy", "dmy HM"))', 1.0),
        ("parsed <- coalesce(mdy(x), dmy(x))", 1.0),
        ("parsed <- mdy_hm(x)", 0.5),
        ("parsed <- as.Date(x)", 0.0),
    ):
        found = collect([work(code, place)], rubric).of("task_3_1_parse")
        assert found is not None
        outcome = next(o for o in found.outcomes if o.label == "how it was done")
        assert outcome.earned == worth, code


def test_a_question_is_judged_by_the_model_and_needs_the_files_number_of_words() -> None:
    rubric, _ = read_legacy_rubric(source())
    question = next(c for c in rubric.criteria if c.id == "question_8_1")
    assert (question.stage, question.checks) == ("feedback", ())  # words alone earn nothing
    words = next(a for a in rubric.adjustments if a.criteria == ("question_8_1",))
    assert (words.deduct, words.partly) == (1.0, True)
    assert words.unless == (Words(at_least=5, where=question.where),)


def test_the_words_of_each_question_and_the_penalty_of_the_file_count() -> None:
    own = source()
    section = own["rubric_elements"]["reflection"]
    section["questions"]["question_8_1"]["minimum_words"] = 150
    section["scoring_rules"] = {"word_count_penalty": "Under the minimum = 50% deduction"}
    rubric, _ = read_legacy_rubric(own)
    first = [a for a in rubric.adjustments if a.criteria == ("question_8_1",)]
    assert [(a.deduct, a.cap, a.unless[0].model_dump()["at_least"]) for a in first] == [
        (0.5, None, 150),
        (None, 0.0, 5),
    ]


def test_thinking_is_never_whether_it_runs() -> None:
    own = source()
    own["rubric_elements"] |= {
        "business_thinking": {
            "max_points": 8,
            "reflection_questions": {
                "question_1_pipes": {"points": 4, "poor": "thin", "good": "sound", "minimum_words": 50},
                "question_2_order": {"points": 4, "grading_note": "accept any order"},
            },
        },
        "communication": {"max_points": 4, "criteria": ["Names say what they hold"]},
    }
    rubric, notes = read_legacy_rubric(own, works("", "### Question 7.1: Pipes\n### Question 7.2: Order"))
    found = {c.id: c for c in rubric.criteria}
    for name in ("question_1_pipes", "question_2_order", "communication"):
        assert (found[name].stage, found[name].checks) == ("feedback", ())
    assert found["question_1_pipes"].levels == ("no answer", "poor: thin", "good: sound")
    assert found["question_1_pipes"].where == r"\bQuestion\s*7\.1(?![\d.]*\d)"
    assert found["question_2_order"].description == "Grading note: accept any order"
    assert found["communication"].description == "Names say what they hold"
    assert "communication: no check can decide it; the model of its stage judges it." in notes


def test_the_technical_section() -> None:
    code = "library(x)\nrivers <- read() %>% str_trim() %>% str_sub(1)"
    lines = "\na <- 1\nb <- 2\nc <- 3"
    assert share("running", work(code + lines, "Part 1: Setup")) == 1
    assert share("running", notebook(cell(code + lines, place="Part 1: Setup"))) == pytest.approx(1 - 2 / 9)
    # with fewer lines of one's own it says nothing that they run
    assert share("running", work(code, "Part 1: Setup")) == pytest.approx(1 - 4 / 9)


def test_mappings_become_equivalents() -> None:
    rubric, _ = read_legacy_rubric(source())
    assert rubric.equivalents["name"] == ("River_Name",)
    assert rubric.equivalents["summarize"] == ("summarise",)
    assert "mdy_hm" in rubric.equivalents["mdy"]


def test_scaled_keeps_the_sum() -> None:
    assert sum(scaled([1, 1, 1], 10)) == pytest.approx(10)
    assert scaled([0, 0], 4) == [2, 2]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"{", "not valid JSON"),
        (b"[1]", "must be a JSON object"),
        (b"{}", "rubric_elements: is missing"),
        (b'{"rubric_elements": {"a": 3}}', "rubric_elements.a: must be an object"),
        (b'{"rubric_elements": {"a": {}}}', "rubric_elements.a.max_points: is missing"),
        (
            b'{"rubric_elements": {"a": {"max_points": "ten"}}}',
            "rubric_elements.a.max_points: must be a number",
        ),
        (
            b'{"rubric_elements": {"a": {"max_points": 1, "criteria": [1]}}}',
            "a.criteria: must be a list of strings",
        ),
    ],
)
def test_mistakes_name_the_key(data: bytes, said: str) -> None:
    with pytest.raises(AssignmentError, match=said):
        read_legacy_rubric(data)


def test_is_legacy() -> None:
    assert is_legacy(source())
    assert not is_legacy({"criteria": []})
    assert not is_legacy([1])
