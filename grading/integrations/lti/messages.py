"""What the tool says to platforms: assertions, scores, line items, what was chosen, its registration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode, urlsplit

from grading.integrations.lti.values import ASSIGNMENT, CLAIM, DEEP, DEEP_LINKING, RESOURCE, SCOPES, Platform

ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
TOOL = "https://purl.imsglobal.org/spec/lti-tool-configuration"
ASSERTION_S = 300
ANSWER_S = 600
EARLIER_S = 30
"""Tokens say that they were issued so much earlier: Moodle refuses those of a clock ahead of its own."""
STEP = timedelta(seconds=1)
CANVAS_TOOL = "https://canvas.instructure.com/lti/"
CANVAS_PLACEMENTS = ("assignment_selection", "link_selection")
"""Where instructors find the tool in Canvas: in an assignment and in a module."""
CANVAS = "canvas"
CANVAS_SUBMISSION = "https://canvas.instructure.com/lti/submission"
"""Canvas' extension of a score (Lti::IMS::ScoresController): without it, and a constant time of submission,
every score is an attempt of its own."""


@dataclass(frozen=True)
class Standing:
    """What a platform is to know of a student's work: points of so many, or that they count no more."""

    points: float | None
    max_points: float
    submission: str
    link: str
    """To the result; the comment of the score."""
    submitted_at: datetime | None = None
    resubmitted: bool = True
    """The platform has no score of this submission yet."""
    commented: bool = False
    """It has this comment already."""


def assertion(platform: Platform, moment: datetime, number: str) -> dict[str, Any]:
    """The claims by which the tool asks a platform for a token."""
    seconds = int(moment.timestamp())
    return {
        "iss": platform.client_id,
        "sub": platform.client_id,
        "aud": platform.audience or platform.token_url,
        "iat": seconds - EARLIER_S,
        "exp": seconds + ASSERTION_S,
        "jti": number,
    }


def token_form(signed: str, scopes: Sequence[str]) -> bytes:
    """The body of that request."""
    return urlencode(
        {
            "grant_type": "client_credentials",
            "client_assertion_type": ASSERTION,
            "client_assertion": signed,
            "scope": " ".join(scopes),
        }
    ).encode()


def rising(last: datetime | None, moment: datetime) -> datetime:
    """A time in whole milliseconds, in a later second than the last one.

    Moodle keeps seconds and refuses a score of the same one (mod_lti, scores.php of gradebookservices).
    """
    moment = moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    if last is None or moment.replace(microsecond=0) > last.replace(microsecond=0):
        return moment
    return last.replace(microsecond=0) + STEP


def timestamp(moment: datetime) -> str:
    """As scores carry it: with milliseconds."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def score(platform: Platform, subject: str, standing: Standing, moment: datetime) -> dict[str, Any]:
    """A score. One that was taken back has no points and says that it is not ready."""
    body: dict[str, Any] = {"userId": subject, "timestamp": timestamp(moment)}
    if standing.submitted_at is not None:
        body["submission"] = {"submittedAt": timestamp(standing.submitted_at)}
    if platform.family == CANVAS:
        body[CANVAS_SUBMISSION] = {
            "new_submission": standing.points is not None and standing.resubmitted, **_submitted(standing),
        }  # fmt: skip
    if standing.points is None:
        return {**body, "activityProgress": "Submitted", "gradingProgress": "NotReady"}
    # Canvas adds the comment of every score to those before, Moodle takes a missing one as an empty one
    commented = standing.commented and platform.family == CANVAS
    return {
        **body,
        "scoreGiven": standing.points,
        "scoreMaximum": standing.max_points,
        # Canvas shows a score only with these two
        "activityProgress": "Completed",
        "gradingProgress": "FullyGraded",
        **({} if commented else {"comment": standing.link}),
    }


def _submitted(standing: Standing) -> dict[str, str]:
    """For versions of Canvas before 2022, which do not read the one of the specification."""
    return {} if standing.submitted_at is None else {"submitted_at": timestamp(standing.submitted_at)}


def line_item(assignment_id: int, title: str, max_points: float, link: str) -> dict[str, Any]:
    """A column of the platform's gradebook."""
    return {
        "scoreMaximum": max_points,
        "label": title[:200],
        "resourceId": resource(assignment_id),
        "tag": "grade",
        **({"resourceLinkId": link} if link else {}),
    }


def resource(assignment_id: int) -> str:
    """How a platform's line items call an assignment."""
    return f"grader-{assignment_id}"


def with_path(url: str, last: str) -> str:
    """The address with one more step in its path, whatever query it has."""
    parts = urlsplit(url)
    return parts._replace(path=f"{parts.path.rstrip('/')}/{last}").geturl()


def chosen(
    platform: Platform,
    deployment: str,
    settings: Mapping[str, Any],
    items: Sequence[Mapping[str, Any]],
    moment: datetime,
    nonce: str,
) -> dict[str, Any]:
    """The claims of the answer to deep linking."""
    seconds = int(moment.timestamp())
    data = settings.get("data")
    return {
        "iss": platform.client_id,
        "aud": platform.issuer,
        "iat": seconds - EARLIER_S,
        "exp": seconds + ANSWER_S,
        "nonce": nonce,
        f"{CLAIM}deployment_id": deployment,
        f"{CLAIM}message_type": "LtiDeepLinkingResponse",
        f"{CLAIM}version": "1.3.0",
        f"{DEEP}content_items": list(items),
        **({f"{DEEP}data": data} if data is not None else {}),
    }


def item(launch_url: str, assignment_id: int, title: str, max_points: float) -> dict[str, Any]:
    """A link to an assignment, with a column in the gradebook."""
    column = {"scoreMaximum": max_points, "label": title[:200], "resourceId": resource(assignment_id)}
    return {
        "type": "ltiResourceLink",
        "title": title[:200],
        "url": launch_url,
        "custom": {ASSIGNMENT: str(assignment_id)},
        "lineItem": {**column, "tag": "grade"},
    }


def canvas_key(base: str) -> dict[str, Any]:
    """What a developer key of Canvas asks for, as its form takes it from an address."""
    launch = f"{base}/lti/launch"
    choosing = {"message_type": "LtiDeepLinkingRequest", "target_link_uri": launch, "text": "Grader"}
    return {
        "title": "Grader",
        "description": "Submits homework and shows its grade.",
        "oidc_initiation_url": f"{base}/lti/login",
        "target_link_uri": launch,
        "redirect_uris": [launch],
        "public_jwk_url": f"{base}/lti/jwks",
        "scopes": list(SCOPES),
        "extensions": [
            {
                "platform": "canvas.instructure.com",
                "domain": urlsplit(base).netloc,
                "tool_id": "grader",
                "privacy_level": "public",
                "settings": {
                    "platform": "canvas.instructure.com",
                    "text": "Grader",
                    "placements": [{"placement": placement, **choosing} for placement in CANVAS_PLACEMENTS],
                },
            }
        ],
        "custom_fields": {},
    }


def registration(base: str, family: str = "") -> dict[str, Any]:
    """What the tool asks a platform to register, for dynamic registration."""
    launch = f"{base}/lti/launch"
    choosing: dict[str, Any] = {"type": DEEP_LINKING, "target_link_uri": launch, "label": "Grader"}
    tool: dict[str, Any] = {
        "domain": urlsplit(base).netloc,
        "target_link_uri": launch,
        "claims": ["iss", "sub", "name", "given_name", "family_name", "email"],
    }
    messages = [{"type": RESOURCE, "target_link_uri": launch}, choosing]
    if family == CANVAS:
        # a message without placements would get one of them, and the first message of a placement counts
        messages = [choosing]
        choosing["placements"] = [f"{CANVAS_TOOL}{one}" for one in CANVAS_PLACEMENTS]
        tool |= {f"{CANVAS_TOOL}privacy_level": "public", f"{CANVAS_TOOL}tool_id": "grader"}
    return {
        "application_type": "web",
        "response_types": ["id_token"],
        "grant_types": ["implicit", "client_credentials"],
        "initiate_login_uri": f"{base}/lti/login",
        "redirect_uris": [launch],
        "client_name": "Grader",
        "jwks_uri": f"{base}/lti/jwks",
        "token_endpoint_auth_method": "private_key_jwt",
        "scope": " ".join(SCOPES),
        TOOL: {**tool, "messages": messages},
    }
