"""What checks and a model propose for a criterion; a confirmation when it is graded again."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from grading.domain.evidence import CheckOutcome
from grading.domain.jobs import Judgement, Provenance
from grading.domain.report import CriterionGrade, Report
from grading.domain.report_changes import Change
from grading.domain.round_states import RoundState
from grading.domain.stages import AnalysisOutput
from grading.scoring import changed
from grading.scoring.carry_over import carried
from grading.scoring.proposed_levels import judgement_of_model, level_of_checks

OUTCOMES = (
    CheckOutcome(check="a", label="a", earned=1, weight=3),
    CheckOutcome(check="b", label="b", earned=0),
)


def criterion(name: str = "load", **changes: Any) -> CriterionGrade:
    values = {
        "criterion": name,
        "title": name,
        "stage": "analysis",
        "points": 4.0,
        "max_points": 4,
        "level": 4,
    }
    return CriterionGrade(**{**values, "highest": 4, "basis": "model", **changes})


def report(*criteria: CriterionGrade, uses_model: bool = True) -> Report:
    judged = AnalysisOutput(judgements=(Judgement(criterion="load", level=4),), summary="")
    origin = Provenance(machine="m", engine="e", model="m", uses_model=uses_model)
    return Report(
        status=RoundState.GRADED, criteria=criteria, points=4, points_so_far=4, max_points=8,
        analysis=judged, stages={"analysis": origin},
    )  # fmt: skip


def test_proposals_are_those_of_checks_and_of_a_model() -> None:
    assert level_of_checks(criterion(evidence=OUTCOMES)) == 3
    assert level_of_checks(criterion()) is None
    judged = [judgement_of_model(report(), criterion(highest=highest)) for highest in (4, 2)]
    assert [one and one.level for one in judged] == [4, 2]
    assert judgement_of_model(report(), criterion("think")) is None
    assert judgement_of_model(report(uses_model=False), criterion()) is None
    assert judgement_of_model(report(), criterion(stage="feedback")) is None


def test_a_confirmation_changes_nothing_and_is_dropped_where_points_are_others() -> None:
    made, agreed = report(criterion()), Change(id=1, kind="confirm", target="load", by="Ada")
    assert changed(made, [agreed]).criteria == made.criteria
    assert carried([agreed], made, made).changes == (agreed,)
    for other in (report(criterion(points=2.0)), report(criterion(max_points=5)), report()):
        assert carried([agreed], made, other) == carried([], made, other)


def test_rubric_items_add_to_the_level_within_the_criterion() -> None:
    work = report(criterion(points=3.0, level=3), criterion("think"))
    less = Change(id=1, kind="item", target="load/a", text="No header.", points=-1.5, by="Ada")
    more = Change(id=2, kind="item", target="load/b", text="Elegant.", points=0.5)
    found = changed(work, [less, more]).criteria[0]
    assert (found.points, found.level_points, found.level) == (2.0, 3.0, 3.0)
    assert [(one.item, one.points, one.by) for one in found.items] == [("a", -1.5, "Ada"), ("b", 0.5, "")]
    level = Change(id=3, kind="points", target="load", points=4, reason="r")
    assert changed(work, [less, level]).criteria[0].points == 2.5
    edited = less.model_copy(update={"id": 4, "points": -9.0})
    assert changed(work, [less, level, edited]).criteria[0].points == 0.0
    removed = Change(id=5, kind="remove_item", target="load/a")
    assert changed(work, [less, removed]).criteria == work.criteria
    assert changed(work, [less, removed, less]).criteria[0].points == 1.5
    unrated = report(criterion(points=None, level=None, basis="ungraded"))
    assert changed(unrated, [less]).criteria[0].points is None  # nobody judged it, so there is no zero


WORDS = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(-500, 500), st.booleans()), min_size=1, max_size=8
)


@given(WORDS)
def test_of_each_rubric_item_the_last_word_counts(words: list[tuple[str, int, bool]]) -> None:
    changes = [
        Change(id=n, kind="item" if on else "remove_item", target=f"load/{item}", points=points / 100)
        for n, (item, points, on) in enumerate(words, start=1)
    ]
    found = changed(report(criterion(points=2.0, level=2), criterion("think")), changes)
    last = {item: points / 100 if on else 0.0 for item, points, on in words}
    assert found.criteria[0].points == round(min(max(2 + sum(last.values()), 0), 4), 2)
    assert found.points == round(sum(one.points or 0.0 for one in found.criteria), 2)


def test_rubric_items_are_carried_over_with_their_criterion() -> None:
    item = Change(kind="item", target="load/a", points=-1)
    old = report(criterion())
    assert carried([item], old, old).conflicts == ()
    other = carried([item], old, report(criterion(points=2.0, level=2)))
    assert (other.changes, [one.why for one in other.conflicts]) == ((item,), ["item"])
    gone = carried([item], old, report(criterion("think")))
    assert (gone.changes, [one.why for one in gone.conflicts]) == ((), ["gone"])
