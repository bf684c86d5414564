"""Fingerprints of what a model does: the same weights in other batches, and other weights."""

from __future__ import annotations

import random

from grading.domain.model_behaviour import (
    MOST_APART,
    POSITIONS,
    TEXTS,
    TOKENS,
    Position,
    decode,
    distance,
    encode,
    of_positions,
    of_texts,
    same_weights,
)
from grading.domain.model_digests import Change, Claim, changes, differing, short

META = {"n_params": 30_532_122_624}


def model(seed: int, spread: float = 4.0) -> list[Position]:
    """The likeliest tokens of each position; a small spread makes all about as likely."""
    drawn = random.Random(seed)
    return [
        {f"t{drawn.randrange(500)}": -drawn.uniform(0, spread) - 0.2 for _ in range(TOKENS)}
        for _ in range(POSITIONS)
    ]


def rounded(positions: list[Position], most: float, drawn: random.Random) -> list[Position]:
    return [{token: value + drawn.uniform(-most, most) for token, value in one.items()} for one in positions]


def digest(positions: list[Position]) -> str:
    return encode(of_positions(META, positions))


def test_a_fingerprint_is_read_as_it_was_written() -> None:
    for made in (of_positions(META, model(1)), of_positions({}, model(2)), of_texts({}, ["one", "", "two"])):
        assert decode(encode(made)) == made
    for strange in (
        "",
        "sha256:00",
        "behaviour:",
        "behaviour:p1",
        "behaviour:p--------ä",
        "behaviour:x--------ab",
    ):
        assert decode(strange) is None
    assert len(digest(model(1))) < 300  # results and heartbeats carry it


def test_rounding_is_no_change_and_other_weights_are() -> None:
    drawn = random.Random(5)
    for seed in range(40):
        for spread in (0.5, 4.0, 15.0):
            kept = model(seed, spread)
            assert same_weights(digest(kept), digest(rounded(kept, 0.1, drawn)))
            assert not same_weights(digest(kept), digest(model(seed + 1000, spread)))


def test_positions_behind_the_first_other_token_are_not_compared() -> None:
    kept = model(1)
    near = [dict(kept[0]), *model(2)[1:]]
    first, second = sorted(near[0], key=lambda token: -near[0][token])[:2]
    near[0][second] = near[0][first] + 0.01  # a near tie that tips
    assert distance(kept, near) < MOST_APART or kept[0][first] - kept[0][second] > 1
    assert distance(kept, [*kept[:1], *model(2)[1:]]) > MOST_APART


def test_what_is_told_of_the_weights_must_be_equal() -> None:
    assert not same_weights(digest(model(1)), encode(of_positions({"n_params": 1}, model(1))))
    assert not same_weights(digest(model(1)), "sha256:00")
    assert same_weights("sha256:AB", "sha256:ab")


def test_a_few_other_texts_are_no_change() -> None:
    texts = [f"text number {at}"[::-1] for at in range(TEXTS)]
    kept = encode(of_texts({}, texts))
    assert same_weights(kept, encode(of_texts({}, ["other", "other", *texts[2:]])))
    assert not same_weights(kept, encode(of_texts({}, ["other"] * 3 + texts[3:])))
    assert not same_weights(kept, digest(model(1)))


def test_machines_whose_models_do_the_same_do_not_differ() -> None:
    kept, drawn = model(1), random.Random(1)
    same = [Claim(name, "openai", "m", digest(rounded(kept, 0.05, drawn))) for name in "abc"]
    assert differing(same) == ()
    (found,) = differing([*same, Claim("d", "openai", "m", digest(model(2)))])
    assert found.alone == ("d",)
    assert short(digest(model(2))) in found.message


def test_a_machine_says_what_its_model_had_before() -> None:
    place = {"engine": "openai", "model": "m", "digest": "sha256:bb", "before": "sha256:aa"}
    assert changes("a", {"analysis": place, "feedback": place}) == [
        Change("a", "openai", "m", "sha256:aa", "sha256:bb")
    ]
    assert changes("a", {"analysis": {**place, "before": ""}}) == []
    (change,) = changes("a", {"analysis": place})
    assert change.message == "m (openai) on a has other weights than before (bb, before: aa)"
    assert "grader accept-models a" in change.remedy
