"""What the tool says to platforms: assertions, scores, line items, what was chosen, its registration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode, urlsplit

from grading.integrations.lti.values import ASSIGNMENT, CLAIM, DEEP, SCOPES, Platform

ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
TOOL = "https://purl.imsglobal.org/spec/lti-tool-configuration"
ASSERTION_S = 300
ANSWER_S = 600
STEP = timedelta(milliseconds=1)


@dataclass(frozen=True)
class Standing:
    """What a platform is to know of a student's work: points of so many, or that they count no more."""

    points: float | None
    max_points: float
    link: str

    @property
    def told(self) -> dict[str, Any]:
        """As it is kept."""
        return {"points": self.points, "max": self.max_points}


def assertion(platform: Platform, moment: datetime, number: str) -> dict[str, Any]:
    """The claims by which the tool asks a platform for a token."""
    seconds = int(moment.timestamp())
    return {
        "iss": platform.client_id,
        "sub": platform.client_id,
        "aud": platform.audience or platform.token_url,
        "iat": seconds,
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
    """A time later than the last one, in whole milliseconds."""
    moment = moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    return moment if last is None or moment > last else last + STEP


def timestamp(moment: datetime) -> str:
    """As scores carry it: with milliseconds."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def score(subject: str, standing: Standing, moment: datetime) -> dict[str, Any]:
    """A score. One that was taken back has no points and says that it is not ready."""
    body: dict[str, Any] = {"userId": subject, "timestamp": timestamp(moment)}
    if standing.points is None:
        return {**body, "activityProgress": "Submitted", "gradingProgress": "NotReady"}
    return {
        **body,
        "scoreGiven": standing.points,
        "scoreMaximum": standing.max_points,
        # Canvas shows a score only with these two
        "activityProgress": "Completed",
        "gradingProgress": "FullyGraded",
        "comment": standing.link,
    }


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
        "iat": seconds,
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
        "description": "Hands in homework and shows its grade.",
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
                    "placements": [
                        {"placement": "assignment_selection", **choosing},
                        {"placement": "link_selection", **choosing},
                    ],
                },
            }
        ],
        "custom_fields": {},
    }


def registration(base: str) -> dict[str, Any]:
    """What the tool asks a platform to register, for dynamic registration."""
    launch = f"{base}/lti/launch"
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
        TOOL: {
            "domain": urlsplit(base).netloc,
            "target_link_uri": launch,
            "claims": ["iss", "sub", "name", "given_name", "family_name", "email"],
            "messages": [
                {"type": "LtiResourceLinkRequest", "target_link_uri": launch},
                {"type": "LtiDeepLinkingRequest", "target_link_uri": launch, "label": "Grader"},
            ],
        },
    }
