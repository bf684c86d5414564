"""What is shown of a prompt that another machine read, or could have read."""

from __future__ import annotations

import pytest
from flask import Flask, g

from app.reports.provenance import rows
from grading.domain.jobs import Hybrid, Provenance

ELSEWHERE = Hybrid(
    strategy="disaggregated",
    why="Reading here takes about 14.80 s, on dgx-spark-1 with sending 4.40 s.",
    reader="dgx-spark-1",
    expected_s={"here": 14.8, "dgx-spark-1": 4.4},
    first_s=4.52,
    queued_s=0.0,
    prefill_s=4.2,
    compress_s=0.0,
    transfer_s=0.7,
    tail_s=0.01,
    convert_s=0.02,
    sent_bytes=846_000_000,
    kv_bits=8,
)


def shown(found: list[Provenance], language: str) -> dict[str, list[str]]:
    with Flask(__name__).test_request_context():
        g.language = language
        return dict(rows(found))


def one(hybrid: Hybrid | None) -> Provenance:
    return Provenance(machine="mac-studio-1", engine="hybrid", model="gemma", hybrid=hybrid)


def test_who_read_why_and_how_long() -> None:
    made = shown([one(ELSEWHERE), one(None)], "en")
    assert made["Prompt read on"] == ["dgx-spark-1", "–"]
    assert made["Why there"][0] == ELSEWHERE.why
    assert made["Reading and sending"][0] == (
        "waited 0.00 s, read 4.20 s, compressed 0.00 s, sent 0.70 s, after reading 0.01 s, "
        "put in place 0.02 s, 846.0 MB, rounded to 8 bits on the way"
    )
    assert made["Read where it was written, expected"] == ["14.80 s", "–"]


def test_in_german() -> None:
    made = shown([one(ELSEWHERE)], "de")
    assert made["Warum dort"] == ["Hier zu lesen dauert etwa 14.80 s, auf dgx-spark-1 mit dem Senden 4.40 s."]


@pytest.mark.parametrize("language", ["en", "de"])
def test_nothing_is_said_where_nobody_else_could_read(language: str) -> None:
    assert not {"Prompt read on", "Prompt gelesen auf"} & set(shown([one(None)], language))


def test_a_prompt_that_was_read_where_it_was_written() -> None:
    direct = Hybrid(strategy="direct", why="There is no reading machine.", first_s=2.0, prefill_s=1.9)
    assert shown([one(direct)], "en")["Prompt read on"] == ["mac-studio-1"]
