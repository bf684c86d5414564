"""Machines that claim the same model and have different weights."""

from __future__ import annotations

from itertools import permutations

from grading.domain.model_digests import Claim, claims, differing, short

QWEN, OTHER = "sha256:06c1097efce0431c", "sha256:ffff097efce0431c"


def claim(machine: str, digest: str = QWEN, engine: str = "ollama", model: str = "qwen3-coder:30b") -> Claim:
    return Claim(machine, engine, model, digest, {"ollama": "ollama", "mlx": "hub"}[engine])


def test_the_same_weights_everywhere_are_no_difference() -> None:
    assert differing([claim("a"), claim("b"), claim("c")]) == ()
    assert differing([]) == ()


def test_a_machine_alone_against_the_majority_is_named() -> None:
    given = [claim("a"), claim("b"), claim("c", OTHER)]
    for order in permutations(given):
        (found,) = differing(order)
        assert found.digests == {QWEN.removeprefix("sha256:"): ("a", "b"), "ffff097efce0431c": ("c",)}
        assert found.alone == ("c",)
        assert found.message == (
            "machines have different weights under the name qwen3-coder:30b (ollama): "
            "06c1097efce0 on a and b; ffff097efce0 on c. c differs from most"
        )
        assert found.remedy.startswith("run `ollama pull qwen3-coder:30b` on c, or `grader deploy`")


def test_without_a_majority_nobody_is_blamed() -> None:
    (found,) = differing([claim("a"), claim("b", OTHER)])
    assert found.alone == ()
    assert "differ from most" not in found.message
    assert "on a and b" in found.remedy
    assert found.remedy.endswith("and restart their workers")
    (found,) = differing([claim("a"), claim("b"), claim("c", OTHER), claim("d", "sha256:00")])
    assert found.alone == ()


def test_only_the_same_engine_and_name_are_compared() -> None:
    apart = [
        claim("a"),
        claim("b", OTHER, engine="mlx"),
        claim("c", OTHER, model="qwen3-coder:480b"),
        claim("d", ""),  # it does not know
        claim("e", "blake3:1234"),  # cannot be compared
    ]
    assert differing(apart) == ()


def test_digests_are_the_same_however_they_are_written() -> None:
    bare = QWEN.removeprefix("sha256:")
    assert differing([claim("a"), claim("b", bare), claim("c", QWEN.upper())]) == ()
    assert short(QWEN) == short(bare) == "06c1097efce0"


def test_models_in_folders_are_not_fetched_from_anywhere() -> None:
    (found,) = differing([claim(m, d, "mlx", "/models/gemma") for m, d in (("a", QWEN), ("b", OTHER))])
    assert "hf download" not in found.remedy
    (found,) = differing([claim(m, d, "mlx", "org/gemma") for m, d in (("a", QWEN), ("b", OTHER))])
    assert "`hf download org/gemma`" in found.remedy


def test_a_heartbeat_claims_what_its_stages_have() -> None:
    place = {"engine": "mlx", "model": "m", "digest": QWEN}
    stages = {"analysis": place, "feedback": {"engine": "openai", "model": "n"}}
    assert claims("a", stages) == [Claim("a", "mlx", "m", QWEN), Claim("a", "openai", "n", "")]
    # a machine that has a model for two stages counts once
    (found,) = differing(
        [*claims("a", {"analysis": place, "feedback": place}), claim("b", OTHER, "mlx", "m")]
    )
    assert found.alone == ()
