"""What is shown of the details that engines report, whatever they are called."""

from __future__ import annotations

import pytest
from flask import Flask, g
from pydantic import ValidationError

from app.reports.provenance import rows
from grading.domain.engine_details import MAX_DETAILS, MAX_MEASUREMENTS, Detail, Measurement
from grading.domain.jobs import Provenance, read_result
from grading.domain.messages import Message, verbatim
from grading.shared.plugin_messages import load_installed_messages
from workers.machine.engines.estimators import AGAIN, LeastSquares, WeightedMean
from workers.machine.engines.remote_prefill import messages as remote_prefill
from workers.machine.engines.speculative import messages as speculative
from workers.machine.engines.speculative.planner import (
    ModelSpeeds,
    Rate,
    StageStatistics,
    Work,
    choose,
    ended,
)

READ_ELSEWHERE = Detail(
    strategy="disaggregated",
    reason=remote_prefill.PREDICTED(
        here="14.80 s", elsewhere=[remote_prefill.ON_READER(reader="dgx-spark-1", time="4.40 s")]
    ),
    values={
        "reader": Measurement(value="dgx-spark-1"),
        "prefill_s": Measurement(value=4.2, unit="s"),
        "sent_bytes": Measurement(value=846_000_000, unit="bytes"),
        "kv_bits": Measurement(value=8, unit="bits"),
    },
)
STRANGE = Detail(
    strategy="left_handed",
    reason=verbatim("It felt like it."),
    values={"odd_count": Measurement(value=7, unit="socks"), "mood": Measurement(value="calm")},
)


@pytest.fixture(autouse=True, scope="module")
def _loaded() -> None:
    load_installed_messages()


def shown(found: list[Provenance], language: str = "en") -> dict[str, list[str]]:
    with Flask(__name__).test_request_context():
        g.language = language
        return dict(rows(found))


def one(**details: Detail) -> Provenance:
    return Provenance(machine="mac-studio-1", engine="mlx", model="gemma", details=details)


def test_a_detail_has_its_strategy_why_and_what_was_measured() -> None:
    made = shown([one(remote_prefill=READ_ELSEWHERE), one()])
    title = "Prefill of the prompt"
    assert made[title] == ["on another machine", "–"]
    assert made[f"{title}: why"] == [
        "Local prefill takes about 14.80 s, on dgx-spark-1 with transfer 4.40 s.",
        "–",
    ]
    assert made[f"{title}: prefill machine"] == ["dgx-spark-1", "–"]
    assert made[f"{title}: prefill"] == ["4.20 s", "–"]
    assert made[f"{title}: transferred in total"] == ["846.0 MB", "–"]
    assert made[f"{title}: KV cache quantized for transfer to"] == ["8 bits", "–"]


def test_one_that_nobody_declared_is_shown_by_its_names() -> None:
    made = shown([one(strange_habit=STRANGE)])
    assert made["strange habit"] == ["left handed"]
    assert made["strange habit: why"] == ["It felt like it."]
    assert made["strange habit: odd count"] == ["7 socks"]
    assert made["strange habit: mood"] == ["calm"]


def test_in_german() -> None:
    made = shown([one(remote_prefill=READ_ELSEWHERE)], "de")
    assert made["Prefill des Prompts"] == ["auf einem anderen Rechner"]
    assert made["Prefill des Prompts: warum"] == [
        "Lokales Prefill dauert etwa 14.80 s, auf dgx-spark-1 mit Übertragung 4.40 s."
    ]


@pytest.mark.parametrize("language", ["en", "de"])
def test_nothing_is_said_where_nothing_is_reported(language: str) -> None:
    assert shown([one()], language).keys() < shown([one(remote_prefill=READ_ELSEWHERE)], language).keys()


def test_every_reason_of_a_draft_is_said_in_german() -> None:
    work = Work(0, 0, 5, 395)
    known, near = (
        ModelSpeeds(plain=WeightedMean(0.1, 1.0)),
        StageStatistics(Rate(10, 1000), WeightedMean(400, 1.0)),
    )
    slow = ModelSpeeds(WeightedMean(0.1, 1.0), WeightedMean(0.001, 1.0), LeastSquares().seen(1, 2, 0.11))
    for _ in range(AGAIN):
        near = ended(near, 400)
    fixed = (speculative.BUSY, speculative.SHORT, speculative.FOREIGN, speculative.CONFIGURED)
    reasons: list[Message] = [kind() for kind in fixed]
    for speeds, habits in (
        (ModelSpeeds(), StageStatistics()),
        (known, StageStatistics()),
        (slow, near),
        (slow, StageStatistics()),
    ):
        reasons.append(choose(speeds, habits, work, 1).why)
    never = ModelSpeeds(WeightedMean(0.01, 1.0), WeightedMean(0.1, 1.0), LeastSquares().seen(1, 2, 0.1))
    reasons += [choose(never, StageStatistics(), work, 1).why, choose(never, near, work, 1).why]
    reasons.append(choose(known, near, Work(0, 0, 5, 1), 1).why)
    assert len({str(why) for why in reasons}) == len(reasons) - 1  # nobody knows yet: by either speeds
    for why in reasons:
        made = shown([one(speculative=Detail(strategy="direct", reason=why))], "de")
        assert made["Einsatz des Entwurfsmodells: warum"] != [str(why)]


def result(details: object) -> dict[str, object]:
    origin = {"machine": "m", "engine": "e", "model": "x", "details": details}
    return {"run_id": "r", "round_id": "o", "stage": "s", "ok": False, "provenance": origin}


@pytest.mark.parametrize(
    "details",
    [
        {"Capital": {"strategy": "x"}},
        {"x" * 41: {"strategy": "x"}},
        {"fine": {"strategy": "not a name"}},
        {"fine": {"strategy": "x", "values": {"a b": {"value": 1}}}},
        {"fine": {"strategy": "x", "values": {"long": {"value": "x" * 201}}}},
        {"fine": {"strategy": "x", "values": {"odd": {"value": 1, "unit": "<b>"}}}},
        {"fine": {"strategy": "x", "values": {"nested": {"value": {"a": 1}}}}},
        {
            "fine": {
                "strategy": "x",
                "values": {f"v{'_' * n}": {"value": n} for n in range(MAX_MEASUREMENTS + 1)},
            }
        },
        {"d" * n: {"strategy": "x"} for n in range(1, MAX_DETAILS + 2)},
    ],
)
def test_what_machines_report_is_bounded(details: object) -> None:
    with pytest.raises(ValidationError):
        read_result(result(details))


def test_what_a_result_reports_comes_back_as_it_was() -> None:
    made = Provenance.model_validate(one(remote_prefill=READ_ELSEWHERE).model_dump(mode="json"))
    assert made.details == {"remote_prefill": READ_ELSEWHERE}
    assert "details" not in one().model_dump(mode="json")
