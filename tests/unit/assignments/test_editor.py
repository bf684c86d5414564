"""Writing an assignment, the pure part: form, folder, differences, proposals, what is carried over."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grading.assignments.editor import form, rubric_from_model, text_lists
from grading.assignments.editor.check_preview import Preview, preview
from grading.assignments.editor.diff import Side, differences
from grading.assignments.editor.folder import Content, Settings, compose, exported, others, plain
from grading.assignments.editor.form_actions import act
from grading.assignments.editor.rubric_from_solution import template
from grading.assignments.editor.steps import STEP_OF, Lacking, Step, Written, following, lacking
from grading.assignments.editor.toml_writer import written
from grading.assignments.legacy_import import Works
from grading.assignments.loader import read_files, read_folder
from grading.checks import collect
from grading.checks.kinds.code import CodeMatches, Uses
from grading.checks.kinds.combined import Alternatives, Ladder, Rung
from grading.checks.kinds.counts import Count
from grading.checks.kinds.prose import Words
from grading.checks.kinds.style import Comments, Documented
from grading.checks.kinds.tests import Case, PassesTests
from grading.documents import Limits, UploadedFile, read, set_apart
from grading.domain.check import check_kinds
from grading.domain.jobs import Finding
from grading.domain.lateness import LateRule
from grading.domain.report import CriterionGrade, Report
from grading.domain.report_changes import Change
from grading.domain.round_states import RoundState
from grading.domain.rubric import Adjustment, Criterion, Rubric
from grading.domain.stages import AnalysisOutput
from grading.scoring.carry_over import carried
from grading.statistics import grade_impact
from grading.statistics.grade_impact import Points

STAGES = ("analysis", "feedback")
SAMPLES = Path(__file__).parents[3] / "samples" / "assignments"
RICH = Rubric(
    criteria=(
        Criterion(
            id="a",
            title="Älpha “x”",
            points=2.5,
            levels=("no", "yes\nand more"),
            where=r"Task 2\b",
            checks=(
                Ladder(rungs=(Rung(when=(Uses(all_of=("f", "[g")), Words(at_least=3)), credit=0.5),)),
                Alternatives(checks=(Uses(any_of=("",)), Words(at_least=2, weight=2))),
                PassesTests(cases=(Case(expression="f(1)\n", expected="[1]", hidden=True),), tests="test_*"),
            ),
        ),
        Criterion(id="b", title="B", points=1, stage="feedback"),
    ),
    adjustments=(
        Adjustment(
            id="pipes",
            title="No pipe",
            description="%>% or |>",
            criteria=("b",),
            deduct=0.2,
            each=True,
            partly=True,
            at_least=0.5,
            where=r"Task 2\b",
            unless=(Uses(all_of=("%>%",)), Words(at_least=3)),
        ),
        Adjustment(id="cap", title="Template", cap=0.2, unless=(Words(at_least=9),)),
    ),
    equivalents={"x": ("y", "z, w"), "a = b": ("c",)},
)


def flat(raw: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """A raw form as browsers send it."""
    inside = raw.items() if isinstance(raw, dict) else enumerate(raw) if isinstance(raw, list) else ()
    for key, one in inside:
        yield from flat(one, f"{name}.{key}" if name else str(key))
    if isinstance(raw, str):
        yield name, raw.replace("\n", "\r\n")


def through(rubric: Rubric) -> Rubric | None:
    return form.read(form.of_form(list(flat(form.to_raw(rubric)))), STAGES)[0]


def sample(name: str) -> dict[str, bytes]:
    return dict(read_folder(SAMPLES / name).files)


def test_a_rubric_goes_through_its_form_and_its_texts_unchanged() -> None:
    assert through(RICH) == RICH
    assert Rubric.model_validate(tomllib.loads(written(plain(RICH)))) == RICH
    assert Rubric.model_validate(json.loads(json.dumps(form.as_json(RICH)))) == RICH
    for name in ("python-basket", "sales-cleaning"):
        rubric = read_folder(SAMPLES / name).rubric
        assert through(rubric) == rubric


def test_every_kind_of_check_has_a_form() -> None:
    for kind, model in check_kinds().items():
        raw = form.blank(model)
        assert raw["kind"] == kind
        assert {"weight", "where"} < {shape.name for shape in form.shapes(model)}
        assert (
            set(raw) - {"kind"}
            == {shape.name for shape in form.shapes(model)}
            == set(model.model_fields) - {"kind"}
        )


@given(st.lists(st.text(max_size=12), max_size=5))
def test_lists_are_typed_and_read_without_loss(entries: list[str]) -> None:
    assert text_lists.lines(text_lists.lines_of(entries)) == entries


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=4))
def test_tables_are_typed_and_read_without_loss(table: dict[str, str]) -> None:
    assert text_lists.pairs(text_lists.pairs_of(table, several=False), several=False) == table


def test_what_is_wrong_is_said_at_its_field() -> None:
    raw = form.to_raw(RICH)
    raw["criteria"][0]["points"] = "many"
    raw["criteria"][0]["checks"][0]["rungs"][0]["when"][1]["at_least"] = "1.5"
    rubric, problems = form.read(raw, STAGES)
    assert rubric is None
    assert [one.place for one in problems] == [
        "criteria.0.points",
        "criteria.0.checks.0.rungs.0.when.1.at_least",
    ]
    raw = form.to_raw(RICH)
    raw["criteria"][1]["stage"] = "cooking"
    assert form.read(raw, STAGES)[1][0].place == "criteria.1.stage"
    raw["criteria"] = []
    assert form.read(raw, STAGES)[1][0].place == "criteria"


def test_adjustments_of_a_form_are_named_and_take_titles_for_criteria() -> None:
    raw = form.to_raw(RICH)
    assert act(raw, "add adjustments", {}) == "adjustments.2"
    act(raw, "add adjustments.2.unless", {"adjustments.2.unless": "no_errors"})
    raw["adjustments"][2] |= {"title": "Each error", "criteria": "B", "deduct": "0,1"}
    raw["criteria"][1]["bonus"] = "yes"
    raw["adjustments"][0]["criteria"] = "Älpha “x”"
    raw["criteria"][1]["notes"] = "merge() counts.\nSo does join()."
    raw["bonus_at_most"] = "2,5"
    rubric, problems = form.read(raw, STAGES)
    assert problems == ()
    assert rubric is not None
    assert [(one.id, one.criteria) for one in rubric.adjustments] == [
        ("pipes", ("a",)), ("cap", ()), ("each-error", ("b",)),
    ]  # fmt: skip
    assert (rubric.bonus_at_most, rubric.max_points, rubric.adjustments[2].deduct) == (2.5, 2.5, 0.1)
    assert rubric.criteria[1].notes == ("merge() counts.", "So does join().")
    raw["adjustments"][2] |= {"deduct": ""}
    assert form.read(raw, STAGES)[1][0].place == "adjustments.2"
    raw["adjustments"][2] |= {"cap": "lots"}
    assert form.read(raw, STAGES)[1][0].place == "adjustments.2.cap"
    raw["adjustments"][2] |= {"cap": "0.5", "where": "("}
    assert form.read(raw, STAGES)[1][0].place == "adjustments.2.where"
    raw["adjustments"][2] |= {"where": "", "criteria": "gone"}
    assert "names no criterion of this rubric: gone" in form.read(raw, STAGES)[1][0].message.message


def test_hostile_forms_are_read_as_what_they_are() -> None:
    pairs = [
        ("criteria", "x"),
        ("criteria.0", "y"),
        ("criteria.0.title.x.y", "deep"),
        ("criteria.99999.title", "late"),
        ("criteria.0.checks.0.kind", "no such"),
        ("criteria.-1.title", "minus"),
        (".".join(["criteria", "0", "checks", "0"] + ["checks", "0"] * 20 + ["kind"]), "uses"),
        ("__class__.x", "z"),
    ]
    raw = form.of_form(pairs)
    assert [one["title"] for one in raw["criteria"]] == ["", "late"] or raw["criteria"] == []
    assert form.read(raw, STAGES)[0] is None
    for action in ("remove criteria.7", "up x", "add criteria.0.checks.9.checks", "add __class__", "boom"):
        act(raw, action, {})


def test_buttons_add_move_copy_and_remove() -> None:
    raw = form.to_raw(RICH)
    assert act(raw, "add criteria.0.checks", {"criteria.0.checks": "words"}) == "criteria.0.checks.3"
    assert raw["criteria"][0]["checks"][3]["kind"] == "words"
    assert act(raw, "up criteria.1", {}) == "criteria.0"
    assert raw["criteria"][0]["title"] == "B"
    assert act(raw, "move criteria.0 1", {}) == "criteria.1"
    assert act(raw, "move criteria.1 0", {}) == "criteria.0"
    assert act(raw, "move criteria.0 9", {}) == "criteria.0"  # there is no such place
    act(raw, "copy criteria.0", {})
    assert [one["title"] for one in raw["criteria"]][:2] == ["B", "B"]
    assert raw["criteria"][1]["id"] == ""
    act(raw, "remove criteria.2", {})
    rubric, _ = form.read(raw, STAGES)
    assert rubric is not None
    assert [one.id for one in rubric.criteria] == ["b", "b-2"]


# --- steps and previews ---------------------------------------------------------------------------------


def lacks(rubric: Rubric, **there: bool) -> list[Lacking]:
    names = ("task", "solution", "tested", "draft", "published", "due", "visible")
    given = {**dict.fromkeys(names, False), **there}
    return list(lacking(Written(rubric=rubric.model_dump(mode="json"), **given)))


def test_steps_name_what_is_missing() -> None:
    titled = template(()).model_copy(
        update={"criteria": tuple(c.model_copy(update={"title": "Titel"}) for c in template(()).criteria)}
    )
    begun = lacks(titled, draft=True)
    assert begun == ["due", "task", "own_rubric", "solution", "test_run", "publication"]
    assert list(dict.fromkeys(STEP_OF[one] for one in begun)) == list(Step)
    unchecked = Rubric(criteria=(Criterion(id="a", title="A", points=1),))
    assert lacks(unchecked, draft=True, due=True, task=True, solution=True, tested=True) == [
        "checks",
        "publication",
    ]
    assert lacks(RICH, published=True, task=True) == ["visibility"]
    assert lacks(RICH, published=True, task=True, draft=True) == ["test_run", "publication"]
    assert lacks(RICH, published=True, task=True, visible=True) == []
    assert [following(step) for step in Step] == [*list(Step)[1:], Step.PUBLISH]


def previewed(
    check: Any, solution: bytes = b"rivers = read('a')\nmean(rivers)\n", **criterion: str
) -> Preview:
    raw = form.to_raw(Rubric(criteria=(Criterion(id="a", title="A", points=1, checks=(check,)),)))
    raw["criteria"][0] |= {"points": "many", "title": "", **criterion}  # of other fields nothing is asked
    starter = read([UploadedFile("work.py", b"rivers = read('a')\n")], Limits()).documents
    return preview(raw, Works(read([UploadedFile("work.py", solution)], Limits()).documents, starter))


def test_a_check_says_what_it_finds_in_solution_and_starter() -> None:
    found = previewed(Uses(all_of=("mean", "read")))
    assert {name: (one.earned, one.message) for name, one in found.outcomes.items()} == {
        "solution": (0.5, "uses mean; read is missing"),
        "starter": (0.0, "nothing was added here"),
    }
    (problem,) = previewed(Uses()).problems
    assert problem.message.message == "checks nothing; set all_of or any_of"


def test_a_check_says_the_same_as_in_a_grading() -> None:
    for name in ("python-basket", "sales-cleaning"):
        folder = read_folder(SAMPLES / name)
        works, said = Works(folder.solution, folder.starter), 0
        graded = collect(set_apart(folder.solution, folder.starter), folder.rubric, folder.solution)
        for criterion, evidence in zip(folder.rubric.criteria, graded.criteria, strict=True):
            for check, expected in zip(criterion.checks, evidence.outcomes, strict=True):
                alone = criterion.model_copy(update={"checks": (check,)})
                rubric = folder.rubric.model_copy(update={"criteria": (alone,), "adjustments": ()})
                found = preview(form.to_raw(rubric), works)
                if found.withheld is None:
                    one = found.outcomes["solution"]
                    assert (one.earned, one.message) == (expected.earned, expected.message)
                    said += 1
        assert said > 3


def test_a_check_that_may_take_long_waits_for_the_test_run() -> None:
    assert previewed(PassesTests(cases=(Case(expression="f(1)", expected="1"),))).withheld == "run"
    assert previewed(Words(at_least=1), solution=b"#" * 200_000).withheld == "size"
    long = b"x = 'a'\n" * 2_000
    assert previewed(CodeMatches(all_of=("a.*b",)), solution=long).withheld is None
    assert previewed(CodeMatches(all_of=("(?s).*a.*b.*c",)), solution=long).withheld == "pattern"
    notes = b"x = 1\n# " + b"a" * 250 + b"\n"
    assert previewed(Words(at_least=1), solution=notes, where="a.*b").withheld is None
    assert previewed(Words(at_least=1), solution=notes, where="a*a*a*a*b").withheld == "pattern"


# --- folders --------------------------------------------------------------------------------------------

SETTINGS = Settings(
    title='Täst \x7f "q"',
    slug="t-1",
    language="python",
    due=datetime(2026, 12, 1, 22, 59, tzinfo=UTC),
    release="at",
    release_at=datetime(2026, 12, 9, tzinfo=UTC),
    late=LateRule(per_day=0.1, at_least=0.5, days=7),
    max_submissions=3,
    group_size=2,
    counts="best",
    visible=False,
)


def test_what_is_composed_is_read_as_the_same() -> None:
    files = {"starter/work.py": b"# do\n", "solution/work.py": b"# do\nx = 1\n", "data/a.bin": b"\xff"}
    rubric = RICH.model_copy(update={"criteria": RICH.criteria[1:]})
    said = Content(rubric, "Do it.", {"feedback": "Be kind."}, True, "German", True, files)
    made = compose(SETTINGS, said)
    read = read_files(made, Limits())
    assert (read.title, read.slug, read.due, read.release) == (SETTINGS.title, "t-1", SETTINGS.due, "at")
    assert read.rubric == said.rubric
    assert (read.task, dict(read.instructions), read.spoken_language) == (
        "Do it.",
        {"feedback": "Be kind."},
        "German",
    )
    assert read.rules == {
        "release_at": SETTINGS.release_at,
        "late": {"per_day": 0.1, "at_least": 0.5, "days": 7},
        "group_size": 2,
        "counts": "best",
        "visible": False,
        "max_submissions": 3,
    }
    assert others(made) == files
    assert (
        compose(
            SETTINGS, Content(read.rubric, read.task, read.instructions, True, "German", True, others(made))
        )
        == made
    )


def test_an_imported_folder_goes_out_as_it_came_while_nothing_changed() -> None:
    files = sample("sales-cleaning")
    read = read_files(files, Limits())
    settings = Settings(
        title=read.title,
        slug=read.slug,
        language=read.language,
        due=read.due,
        release=read.release or "after_review",
    )
    said = Content(
        read.rubric, read.task, read.instructions, read.share_solution, read.spoken_language, read.show_draft,
        others(files),
    )  # fmt: skip
    if read.release is not None:
        assert exported(files, settings, said) == files
    other = settings.model_copy(update={"title": "Other"})
    again = read_files(exported(files, other, said), Limits())
    assert (again.title, again.rubric, again.starter, again.solution) == (
        "Other", read.rubric, read.starter, read.solution,
    )  # fmt: skip


# --- differences, proposals, dry runs -------------------------------------------------------------------


def test_differences_name_what_changed() -> None:
    new = RICH.model_copy(
        update={
            "criteria": (
                RICH.criteria[1].model_copy(update={"points": 4.0, "checks": (Words(at_least=9),)}),
                Criterion(id="c", title="C", points=1),
            ),
        }
    )
    found = differences(
        Side(RICH, files={"data/a": "1", "task.md": "2"}), Side(new, "Do", files={"data/b": "3"})
    )
    assert [(one.what, one.name) for one in found] == [
        ("total", ""),
        ("field", "B"),
        ("check_added", "B"),
        ("criterion_added", "C"),
        ("criterion_removed", RICH.criteria[0].title),
        ("task", ""),
        ("file_added", "data/b"),
        ("file_removed", "data/a"),
    ]
    assert differences(Side(RICH), Side(RICH)) == ()


def test_differences_name_deductions_and_bonus() -> None:
    first, second = RICH.adjustments
    other = Adjustment(id="new", title="New", cap=0.5, unless=(Words(at_least=9),))
    changed = first.model_copy(update={"deduct": 0.3, "unless": first.unless[:1]})
    new = RICH.model_copy(update={"adjustments": (changed, other), "bonus_at_most": 1.0})
    sides = [Side(rubric, "") for rubric in (RICH, new)]
    found = [(one.what, one.name, one.field) for one in differences(*sides)]
    assert found == [
        ("field", "No pipe", "deduct"), ("check_removed", "No pipe", "words"),
        ("adjustment_added", "New", ""), ("adjustment_removed", second.title, ""), ("bonus_at_most", "", ""),
    ]  # fmt: skip


def test_a_model_s_answer_becomes_a_rubric_or_is_refused() -> None:
    one = {
        "title": "Loads", "description": "d", "stage": "analysis", "points": 5, "levels": ["no", "yes"],
        "uses": ["pd.read_csv()", "read csv"], "defines": ["x"], "words": 0,
    }  # fmt: skip
    made = rubric_from_model.rubric_of(json.dumps({"criteria": [one, one]}), STAGES)
    assert [c.id for c in made.criteria] == ["loads", "loads-2"]
    assert made.criteria[0].checks[0] == Uses(all_of=("pd.read_csv",))
    more = {**one, "counts": [{"name": "%>%", "at_least": 10}], "comments": 3, "documented": True}
    made = rubric_from_model.rubric_of(json.dumps({"criteria": [more]}), STAGES)
    assert made.criteria[0].checks[2:] == (
        Count(names=("%>%",), at_least=10),
        Comments(at_least=3),
        Documented(),
    )
    for wrong in (
        "", "[]", '{"criteria": []}', json.dumps({"criteria": [{**one, "stage": "x"}]}), "[" * 100_000,
        json.dumps({"criteria": [{**one, "points": 1e999}]}), json.dumps({"criteria": [{**one, "more": 1}]}),
    ):  # fmt: skip
        with pytest.raises(rubric_from_model.NoProposal):
            rubric_from_model.rubric_of(wrong, STAGES)


def test_long_material_is_shortened_and_that_is_said() -> None:
    asked = rubric_from_model.question("t" * 30_000, "s", "x", STAGES, "German")
    assert asked.shortened
    assert len(asked.user) < rubric_from_model.MOST_CHARS + 500
    assert rubric_from_model.CUT in asked.user
    assert "German" in asked.system
    assert not rubric_from_model.question("t", "s", "x", STAGES, "German").shortened


def test_a_template_is_made_of_the_solution() -> None:
    made = template(read_folder(SAMPLES / "sales-cleaning").solution)
    names = {c.id for c in made.criteria}
    assert names == {"functions", "results", "runs", "explains"}
    assert {c.id for c in template((), feedback=False).criteria} == {"runs"}
    lines = read([UploadedFile("a.py", b"x = 1\n# a comment\nprint(x)\n")]).documents
    small = template(set_apart(lines), feedback=False)
    assert {c.own_lines for one in small.criteria for c in one.checks if c.kind == "no_errors"} == {2}
    least = {c.kind: c.own_lines for one in made.criteria if one.id == "runs" for c in one.checks}
    assert least == {"no_errors": 5, "no_todo": 0, "all_executed": 5, "has_output": 0}


def report(points: float | None, most: float, *titles: str, criterion: str = "a") -> Report:
    of_it: dict[str, Any] = {
        "title": "Alpha",
        "stage": "analysis",
        "level": 1,
        "highest": 4,
        "basis": "model",
    }
    grade = CriterionGrade(criterion=criterion, points=points, max_points=most, **of_it)
    findings = tuple(Finding(severity="note", title=title) for title in titles)
    totals: dict[str, Any] = {"points": points, "points_so_far": points or 0, "max_points": most}
    analysis = AnalysisOutput(judgements=(), findings=findings)
    return Report(status=RoundState.GRADED, criteria=(grade,), analysis=analysis, **totals)


@pytest.mark.parametrize(
    ("new", "why", "kept"),
    [
        (report(2, 4), [], True),
        (report(3, 4), ["judged"], True),
        (report(2, 8), ["worth"], True),
        (report(2, 2), ["too_many"], True),
        (report(2, 4, criterion="b"), ["gone"], False),
    ],
)
def test_what_a_person_gave_goes_along_and_conflicts_are_said(
    new: Report, why: list[str], kept: bool
) -> None:
    change = Change(id=7, kind="points", target="a", points=3)
    found = carried([change], report(2, 4), new)
    assert ([one.why for one in found.conflicts], bool(found.changes)) == (why, kept)


def test_remarks_are_found_again_or_left_behind() -> None:
    hides = [Change(id=n, kind="hide", target=f"finding:{n}") for n in range(3)]
    added = Change(id=9, kind="add", text="Well done.")
    found = carried([*hides, added], report(1, 4, "x", "y"), report(1, 4, "y", "z"))
    assert [(one.id, one.target) for one in found.changes] == [(1, "finding:0"), (9, "")]
    assert [(one.why, one.name) for one in found.conflicts] == [("remark", "x")]


def test_the_figures_of_a_dry_run() -> None:
    found = [Points(4, 10, 6, 10), Points(6, 10, 4, 10), Points(5, 10, 5, 10), Points(4, 10, 9, 20)]
    made = grade_impact.summary(found)
    assert (made.compared, made.up, made.down, made.same) == (4, 2, 1, 1)
    assert (made.mean, made.middle, made.most) == (1.25, 1.0, 5)
    assert (made.over, made.under) == (1, 1)
    assert grade_impact.summary([]).mean is None
    assert {dot.count for dot in grade_impact.dots([*found, found[0]])} == {1, 2}
