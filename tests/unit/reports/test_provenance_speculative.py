"""What is shown of a draft model that proposed tokens, or could have."""

from __future__ import annotations

import pytest
from flask import Flask, g

from app.reports.provenance import rows
from grading.domain.jobs import Provenance, Speculative
from workers.machine.engines.cost_model import AGAIN, Faded, Fit
from workers.machine.engines.speculative import decode_loop
from workers.machine.engines.speculative.planner import Habits, Rate, Speeds, Work, choose, ended

DRAFTED = Speculative(
    strategy="speculative",
    why=(
        "About 300 more tokens take 40.10 s without a draft and 22.00 s with 3 proposed at a time, of which "
        "72% are accepted."
    ),
    draft="gemma-3-1b",
    rounds=100,
    proposed=300,
    accepted=216,
    read_s=0.4,
    draft_s=5.0,
    check_s=17.0,
)


def shown(found: list[Provenance], language: str) -> dict[str, list[str]]:
    with Flask(__name__).test_request_context():
        g.language = language
        return dict(rows(found))


def one(account: Speculative | None) -> Provenance:
    return Provenance(machine="mac-studio-1", engine="mlx", model="gemma-3-27b", speculative=account)


def test_what_was_proposed_and_why() -> None:
    made = shown([one(DRAFTED), one(None)], "en")
    assert made["Draft model"] == ["gemma-3-1b", "–"]
    assert made["Proposals of the draft model"] == [
        "216 of 300 tokens accepted; read 0.40 s, proposed 5.00 s, checked 17.00 s",
        "–",
    ]
    assert made["Why drafted, or not"] == [DRAFTED.why, "–"]


def test_one_that_had_no_use_for_it() -> None:
    direct = Speculative(strategy="direct", why=decode_loop.BUSY, draft="gemma-3-1b")
    assert shown([one(direct)], "en")["Proposals of the draft model"] == ["none"]


def test_in_german() -> None:
    made = shown([one(DRAFTED)], "de")
    assert made["Warum mit Entwurf oder ohne"] == [
        "Etwa 300 weitere Tokens dauern ohne Entwurf 40.10 s und mit je 3 Vorschlägen 22.00 s; 72% davon "
        "werden angenommen."
    ]


@pytest.mark.parametrize("language", ["en", "de"])
def test_nothing_is_said_without_a_draft_model(language: str) -> None:
    assert not {"Draft model", "Entwurfsmodell"} & set(shown([one(None)], language))


def test_every_reason_is_said_in_german() -> None:
    work = Work(0, 0, 5, 395)
    known, near = Speeds(plain=Faded(0.1, 1.0)), Habits(Rate(10, 1000), Faded(400, 1.0))
    slow = Speeds(Faded(0.1, 1.0), Faded(0.001, 1.0), Fit().seen(1, 2, 0.11))
    for _ in range(AGAIN):
        near = ended(near, 400)
    reasons = [decode_loop.BUSY, decode_loop.SHORT, decode_loop.FOREIGN, decode_loop.ORDERED]
    for speeds, habits in ((Speeds(), Habits()), (known, Habits()), (slow, near), (slow, Habits())):
        reasons.append(choose(speeds, habits, work, 1).why)
    never = Speeds(Faded(0.01, 1.0), Faded(0.1, 1.0), Fit().seen(1, 2, 0.1))
    reasons += [choose(never, Habits(), work, 1).why, choose(never, near, work, 1).why]
    reasons.append(choose(known, near, Work(0, 0, 5, 1), 1).why)
    assert len(set(reasons)) == len(reasons) - 1  # nobody knows yet: by either speeds
    for why in reasons:
        account = Speculative(strategy="direct", why=why, draft="d")
        assert shown([one(account)], "de")["Warum mit Entwurf oder ohne"] != [why]
