"""Verifying events: what the reference library signs, and what somebody changed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from standardwebhooks import Webhook

from grader_client import InvalidWebhook, verify_webhook

OLD = "whsec_" + "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
NEW = "whsec_" + "bmV3IHNlY3JldCBvZiBhdCBsZWFzdCAyNCBieXRlcyE="
BODY = '{"type": "grade.released", "data": {"status": "ü"}}'


def signed(*secrets: str, moment: datetime | None = None, body: str = BODY) -> dict[str, str]:
    moment = moment or datetime.now(UTC)
    signatures = [Webhook(secret).sign("msg_1", moment, body) for secret in secrets]
    return {
        "Webhook-Id": "msg_1",
        "webhook-timestamp": str(int(moment.timestamp())),
        "webhook-signature": " ".join(signatures),
    }


@pytest.mark.parametrize(
    ("by", "known"), [([OLD], [OLD]), ([NEW, OLD], [OLD]), ([NEW], [OLD, NEW]), ([OLD], [NEW, OLD])]
)
def test_one_secret_of_both_sides_is_enough(by: list[str], known: list[str]) -> None:
    assert verify_webhook(signed(*by), BODY.encode(), known)["data"] == {"status": "ü"}


def test_what_was_changed_is_refused() -> None:
    good = signed(OLD)
    changes: list[dict[str, str]] = [
        {"webhook-signature": ""},
        {"webhook-signature": good["webhook-signature"].replace("v1,", "v1a,")},
        {"webhook-signature": "v1,é"},
        {"webhook-timestamp": str(int(good["webhook-timestamp"]) + 1)},
        {"webhook-timestamp": "9" * 400},
        {"webhook-timestamp": "now"},
        {"Webhook-Id": "msg_2"},
    ]
    for change in changes:
        with pytest.raises(InvalidWebhook):
            verify_webhook({**good, **change}, BODY.encode(), [OLD])
    for body, secrets in ((BODY.encode() + b" ", [OLD]), (BODY.encode(), [NEW]), (BODY.encode(), [])):
        with pytest.raises(InvalidWebhook):
            verify_webhook(good, body, secrets)
    with pytest.raises(InvalidWebhook, match="no signature"):
        verify_webhook({}, BODY.encode(), [OLD])


@pytest.mark.parametrize("minutes", [-6, 6])
def test_what_was_recorded_is_not_taken_later(minutes: int) -> None:
    moment = datetime.now(UTC) + timedelta(minutes=minutes)
    with pytest.raises(InvalidWebhook, match="not signed now"):
        verify_webhook(signed(OLD, moment=moment), BODY.encode(), [OLD])


def test_a_secret_that_is_none_is_said() -> None:
    with pytest.raises(ValueError, match="base64"):
        verify_webhook(signed(OLD), BODY.encode(), "whsec_c2hvcnQ=")
