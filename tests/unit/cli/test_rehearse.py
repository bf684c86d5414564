"""What a rehearsal asks an operator to change."""

from __future__ import annotations

from typing import Any

import pytest

from cli.commands.rehearse import class_seconds, figures_of, weights
from grading.broker.machine_status import MachineState

RUN = {
    "ok": True, "error": "", "message": "", "seconds": 2.0, "first_token_s": 0.5, "queued_s": None,
    "tokens": {"prompt": 1000, "cached": 900, "output": 100}, "repaired": False, "schema": "json_schema",
    "digest": "sha256:aa", "flags": [],
}  # fmt: skip
FAILED = {**RUN, "ok": False, "error": "model_missing", "message": "The model is not there."}
STAGE = {
    "stage": "analysis", "engine": "box", "kind": "openai", "model": "m", "digest": "sha256:aa",
    "context_tokens": 8192,
    "together": 4, "seconds": 10.0, "runs": [RUN] * 20,
}  # fmt: skip


def state(name: str = "one") -> MachineState:
    return MachineState(name, "primary", 4, {}, alive=True)


def changes(slots: int = 4, **stage: Any) -> str:
    return "\n".join(figures_of(state(), {**STAGE, **stage}, slots).change)


def test_a_class_that_went_well_asks_for_nothing() -> None:
    found = figures_of(state(), STAGE, 4)
    assert found.change == ()
    assert (found.succeeded, found.hour, found.cached, found.output_tokens_s) == (20, 7200, 0.9, 200)
    assert class_seconds([found], 20) == pytest.approx(10, rel=0.5)


@pytest.mark.parametrize(
    ("stage", "says"),
    [
        (
            {"runs": [FAILED] * 3 + [RUN]},
            "3 of 4 runs failed: The model is not there. To fix it, load",
        ),
        ({"together": 1}, "at most 1 of 4 runs at the same time"),
        ({"runs": [{**RUN, "tokens": {"prompt": 1000, "cached": 0, "output": 9}}] * 9}, "prefix cache"),
        (
            {"runs": [{**FAILED, "error": "output_truncated", "message": "Cut."}]},
            "Cut. To fix it, raise max_output_tokens",
        ),
        ({"runs": [RUN, {**RUN, "digest": "sha256:bb"}]}, "The model changed during the rehearsal"),
        ({"runs": [{**RUN, "schema": "none (refused)"}]}, "does not bind answers to the JSON schema"),
        ({"runs": [{**RUN, "repaired": True}]}, "1 of 1 answers had to be asked for again"),
        ({"runs": [{**RUN, "flags": ["shortened"]}]}, "raise context_tokens above 8192"),
        ({"runs": [{**RUN, "flags": ["answer_shortened"]}]}, "raise max_output_tokens"),
    ],
)
def test_each_fault_says_what_to_change(stage: dict[str, Any], says: str) -> None:
    assert says in changes(**stage)


def test_a_server_that_never_tells_of_its_cache_is_not_blamed_for_it() -> None:
    uncached = [{**RUN, "tokens": {"prompt": 1000, "cached": 0, "output": 9}}] * 9
    assert changes(kind="ollama", runs=uncached) == ""


def test_machines_without_a_model_and_without_a_success() -> None:
    rules = {**RUN, "tokens": {"prompt": 0, "cached": 0, "output": 0}, "first_token_s": None, "schema": ""}
    assert changes(together=1, runs=[rules] * 20) == ""
    nothing = figures_of(state(), {**STAGE, "runs": [FAILED] * 2}, 4)
    assert (nothing.succeeded, nothing.run_s, nothing.cached) == (0, None, None)
    assert class_seconds([nothing], 20) is None


def test_other_weights_under_the_same_name_are_said() -> None:
    other = {**STAGE, "digest": "sha256:bb", "runs": [{**RUN, "digest": "sha256:bb"}]}
    found = [figures_of(state("one"), STAGE, 4), figures_of(state("two"), other, 4)]
    assert len(weights(found)) == 1
    assert weights(found[:1]) == []
