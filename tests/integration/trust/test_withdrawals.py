"""What takes a proof back: another rubric, another origin, a shift of scores; and what further tries cost."""

from __future__ import annotations

from typing import Any

import pytest

from grading.domain.report import Report
from grading.store import tables
from grading.store.assignments import versions
from grading.store.database import now
from grading.store.trust import confidence, release_samples
from grading.store.trust.guarantees import NothingProven
from grading.store.trust.release_samples import Wanted
from tests.integration.review.test_pages import given
from tests.integration.trust.guarantee_class import CLASS, SCORES, Class, publish, works

__all__ = ["works"]


def _other(**origin: str) -> Report:
    plain = given(3, 4.5)
    stages = {name: one.model_copy(update=origin) for name, one in plain.stages.items()}
    return plain.model_copy(update={"stages": stages})


@pytest.mark.parametrize(
    ("origin", "cause", "words"),
    [
        ({"model": "gemma"}, "model", "another model graded"),
        ({"digest": "sha256:1"}, "weights", "another one under the same name (other weights)"),
        ({"prompt_version": "analysis-9"}, "prompt", "the model got other instructions"),
        ({"engine": "mlx"}, "engine", "another engine graded"),
    ],
)
def test_another_origin_takes_the_proof_back(
    works: Class, origin: dict[str, str], cause: str, words: str
) -> None:
    works.draw()
    works.mark(works.drawn())
    works.add(1, given(3, 4.5))
    assert len(works.proof().proven) == CLASS  # newer work of the same origin changes nothing
    works.add(1, _other(**origin))
    proof = works.proof()
    assert [one.cause for one in proof.taken_back] == [cause]
    assert not proof.proven
    page = works.page()
    assert words in page
    assert "Draw a new sample." in page
    with pytest.raises(NothingProven):
        works.release()


def _tries(works: Class) -> int:
    with works.school.store.read() as session:
        sample = release_samples.find_open(session, works.school.assignment)
        assert sample is not None
        return len(release_samples.load_sample(session, sample).tries)


def test_who_changes_the_model_until_a_sample_passes_gains_nothing(works: Class) -> None:
    def grade_again(session: Any, assignment: tables.Assignment, model: str) -> None:
        version = versions.published_version(session, assignment).id
        for one in session.query(tables.Submission).filter_by(assignment_id=assignment.id):
            works.grade(session, one, version, _other(model=model))

    works.draw()
    works.mark(works.drawn(), think=0)
    assert not works.proof().proven
    first = works.proof().fewest
    works.change(lambda session, one: grade_again(session, one, "gemma"))
    assert works.proof().taken_back
    works.draw()
    assert _tries(works) == 2
    works.mark(works.drawn())
    second = works.proof()
    assert second.fewest is None or (first is not None and second.fewest > first)
    if not second.proven:
        works.draw()  # of the same ground: a third try
        assert _tries(works) == 3
    assert Wanted().target.risk(1) < Wanted().target.risk(0) / 4


def test_a_release_ends_the_tries_on_other_grounds(works: Class) -> None:
    works.draw()
    works.mark(works.drawn())
    assert works.release() == CLASS
    works.add(CLASS, _other(model="gemma"))
    assert [one.cause for one in works.proof().taken_back] == ["model"]
    works.draw()
    assert _tries(works) == 1
    works.draw()
    assert _tries(works) == 2

    def take_back(session: Any, _assignment: Any) -> None:
        session.query(tables.Grade).update({"released_at": None})

    works.change(take_back)  # a release that was taken back stands for nothing
    assert _tries(works) == 3


def test_what_comes_after_the_draw_needs_a_person_or_a_new_draw(works: Class) -> None:
    works.draw()
    works.mark(works.drawn())
    late = works.add(3, given(3, 4.5))
    proof = works.proof()
    assert proof.reasons == {"late": 3}
    assert not set(late) & set(proof.proven)
    page = works.page()
    assert "<strong>3</strong> graded after the sample was drawn" in page
    assert "release what is proven and then draw a new sample of the rest" in page
    assert "All criteria together" in page
    assert works.release() == CLASS
    works.draw(2)
    proof = works.proof()
    assert proof.sample is not None
    assert (proof.sample.size, _tries(works)) == (3, 2)
    assert set(works.drawn()) <= set(late)


def _sure(percent: int, **changes: Any) -> Report:
    """As the class, but the model is so sure of its levels."""
    plain = given(3, 4.5, **changes)
    criteria = tuple(one.model_copy(update={"confidence": percent}) for one in plain.criteria)
    return plain.model_copy(update={"criteria": criteria})


def test_a_shift_of_scores_takes_the_proof_back(works: Class) -> None:
    works.draw()
    works.mark(works.drawn())
    works.add(20, given(3, 4.5))
    assert works.proof().proven  # the same scores as before
    works.add(20, _sure(5))
    proof = works.proof()
    assert [one.cause for one in proof.taken_back] == ["drift"]
    assert not proof.proven
    assert "another certainty" in works.page()


def test_what_happens_after_grading_is_no_shift(works: Class, monkeypatch: pytest.MonkeyPatch) -> None:
    """Second opinions come late; held grades are reviewed; work is graded again."""
    monkeypatch.setattr(confidence, "scores", SCORES)

    def with_opinions(session: Any, assignment: tables.Assignment) -> None:
        for round_ in session.query(tables.Round):
            session.add(
                tables.SecondOpinion(
                    round_id=round_.id, stage="feedback", submission_id=round_.submission_id,
                    assignment_id=assignment.id, state="done", apart=0, created_at=now(session),
                    opinions=[{"criterion": name, "second": 3} for name in ("load", "think")],
                )
            )  # fmt: skip

    works.change(with_opinions)
    works.draw(5)
    works.add(20, given(3, 4.5))
    held = works.add(20, _sure(5, held=True))

    def later(session: Any, assignment: tables.Assignment) -> None:
        for grade in session.query(tables.Grade).filter(tables.Grade.submission_id.in_(held)):
            grade.held, grade.reviewed_at = False, now(session)
        version = versions.published_version(session, assignment).id
        for one in works.submissions[:20]:
            works.grade(session, session.get_one(tables.Submission, one), version, _sure(5))

    works.change(later)
    assert works.proof().taken_back == ()


def test_another_rubric_takes_the_proof_back(works: Class) -> None:
    works.draw()
    works.mark(works.drawn())

    works.change(publish)
    assert [one.cause for one in works.proof().taken_back] == ["rubric"]
    assert {one.why for one in works.proof().needs_person} == {"other_rubric"}
