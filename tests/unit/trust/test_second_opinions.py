"""Second opinions as values: families, samples, thresholds, orders, what is apart."""

from __future__ import annotations

import pytest

from grading.domain.evidence import CriterionEvidence, Evidence, Flag
from grading.domain.jobs import Judgement
from grading.domain.model_families import family_of
from grading.domain.report import Report
from grading.domain.round_states import RoundState
from grading.domain.rubric import Criterion
from grading.domain.second_opinions import SecondOpinionPolicy
from grading.scoring.second_opinions import compare_opinions, in_sample, other_order, wants_opinion
from grading.statistics.second_opinions import agreement_by_criterion


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("qwen3-coder:30b", "qwen"),
        ("QwQ-32B", "qwen"),
        ("mlx-community/gemma-3-27b-it-bf16", "gemma"),
        ("mlx-community/Qwen3-Coder-30B-A3B-Instruct-4bit", "qwen"),
        ("/models/Mixtral-8x7B.gguf", "mistral"),
        ("codellama:13b", "llama"),
        ("phi4:14b", "phi"),
        ("gpt-oss:20b", "gpt"),
        ("yi:34b", "yi"),
        ("philosopher-7b", "philosopher"),
        ("rules", "rules"),
        ("12", "12"),
    ],
)
def test_names_tell_families(model: str, family: str) -> None:
    assert family_of(model) == family


def made(points: float, *codes: str) -> Report:
    flags = tuple(Flag(code=code, message="") for code in codes)
    return Report(
        status=RoundState.GRADED,
        criteria=(),
        points=points,
        points_so_far=points,
        max_points=100,
        flags=flags,
    )


def test_a_sample_is_drawn_by_the_submission_alone_and_grows() -> None:
    ids = [f"{number:032x}" for number in range(2000)]
    small, large = ({one for one in ids if in_sample(one, share)} for share in (0.1, 0.3))
    assert small < large
    assert 140 < len(small) < 260
    assert all(in_sample(one, 1.0) for one in ids)
    policy = SecondOpinionPolicy(which="sample", share=0.1)
    assert {one for one in ids if wants_opinion(policy, one, made(1))} == small


@pytest.mark.parametrize(
    ("points", "codes", "wanted"),
    [(50, (), True), (55, (), True), (44.9, (), False), (56, (), False), (90, ("disagreement",), True)],
)
def test_near_is_within_reach_of_a_threshold_or_in_doubt(
    points: float, codes: tuple[str, ...], wanted: bool
) -> None:
    assert wants_opinion(SecondOpinionPolicy(which="near"), "a", made(points, *codes)) is wanted


def test_criteria_come_in_another_order_always_the_same() -> None:
    for count in range(2, 9):
        items = tuple(range(count))
        mixed = other_order(items, "seed")
        assert sorted(mixed) == list(items)
        assert mixed != items
        assert mixed == other_order(items, "seed")
    assert other_order(("one",), "seed") == ("one",)


def test_more_than_one_level_from_either_is_apart() -> None:
    criteria = [Criterion(id=name, title=name, points=1) for name in "abcd"]
    criteria.append(Criterion(id="e", title="e", points=1, levels=("no", "yes")))
    evidence = Evidence(criteria=(CriterionEvidence(criterion="c", share=1.0),))
    first = {one.id: Judgement(criterion=one.id, level=1) for one in criteria if one.id != "d"}
    levels = {"a": 2, "b": 3, "c": 2, "d": 4, "e": 0}
    second = {name: Judgement(criterion=name, level=level) for name, level in levels.items()}
    found = compare_opinions(criteria, evidence, first, second)
    assert {one.criterion: one.apart for one in found} == {
        "a": False, "b": True, "c": True, "d": False, "e": True,
    }  # fmt: skip
    rows = {row.criterion: row for row in agreement_by_criterion(found)}
    assert (rows["b"].count, rows["b"].apart, rows["b"].models.difference) == (1, 1, 2)
    assert (rows["d"].models.n, rows["c"].checks.n) == (0, 1)
