"""A Canvas: what its LTI 1.3 sends, asks for and refuses (Canvas in 2026, files named below).

Names of files are below `app` of Canvas' source, except those that begin with `lib`.
"""

from __future__ import annotations

import json
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from cli.dev.platforms.world import Item, Link, Person, Refusal, Score, World, claim
from grading.integrations.lti.keys import signed
from grading.integrations.lti.messages import CANVAS_SUBMISSION, CANVAS_TOOL
from grading.integrations.lti.values import (
    AGS,
    DEEP,
    DEEP_LINKING,
    NRPS,
    RESOURCE,
    ROLE,
    SCOPE_LINE_ITEMS,
    SCOPE_RESULTS,
    SCOPE_ROSTER,
    SCOPE_SCORES,
)

VALID_S = 3600
LAUNCH_S = 300
"""Life of a launch that was begun (lib/lti/redis_message_client.rb)."""
SCOPES = frozenset({SCOPE_LINE_ITEMS, SCOPE_RESULTS, SCOPE_SCORES, SCOPE_ROSTER})
TEST_USER = "http://purl.imsglobal.org/vocab/lti/system/person#TestUser"
IN_COURSE = {
    "StudentEnrollment": (f"{ROLE}membership#Learner",),
    "TeacherEnrollment": (f"{ROLE}membership#Instructor",),
    "TaEnrollment": (f"{ROLE}membership/Instructor#TeachingAssistant", f"{ROLE}membership#Instructor"),
    "DesignerEnrollment": (f"{ROLE}membership#ContentDeveloper",),
    "ObserverEnrollment": (f"{ROLE}membership#Mentor",),
    "StudentViewEnrollment": (f"{ROLE}membership#Learner", TEST_USER),
    "AccountAdmin": (),
    "nobody": (),
}
"""lib/lti/substitutions_helper.rb, LIS_V2_LTI_ADVANTAGE_ROLE_MAP; AccountAdmin has no place in the course."""
INSTITUTION = {
    "StudentEnrollment": f"{ROLE}institution/person#Student",
    "TeacherEnrollment": f"{ROLE}institution/person#Instructor",
    "TaEnrollment": f"{ROLE}institution/person#Instructor",
    "AccountAdmin": f"{ROLE}institution/person#Administrator",
}
AUTHORIZE_NEEDS = (
    "client_id", "login_hint", "lti_message_hint", "nonce", "prompt", "redirect_uri", "response_mode",
    "response_type", "scope",
)  # fmt: skip
REGISTRATION_NEEDS = (
    "application_type", "grant_types", "response_types", "redirect_uris", "initiate_login_uri",
    "client_name", "jwks_uri", "token_endpoint_auth_method",
)  # fmt: skip


@dataclass
class Canvas(World):
    """One school of a Canvas, whose issuer may be another host's."""

    context: str = "4dde05e8ca1973bcca9bffc13e1548820eee93a3"
    course: int = 7
    said_issuer: str = ""
    """The issuer where it is not its address, as at Instructure."""
    allowed_attempts: int = 0
    """Of every assignment; 0: any number."""
    launches: dict[str, tuple[str, str, float, str]] = field(default_factory=dict)
    """Launches that were begun, until they are fetched: who, which link, until when, the login hint."""
    placements: dict[str, str] = field(default_factory=dict)
    """What a registration got: the kind of message of each placement."""
    page: int = 50
    """Most people of one page of the roster."""

    @property
    def issuer(self) -> str:
        """`lti_iss` of its configuration."""
        return self.said_issuer or self.base

    def addresses(self) -> dict[str, str]:
        """Of its routes."""
        return {
            "authorize_url": f"{self.base}/api/lti/authorize_redirect",
            "token_url": f"{self.base}/login/oauth2/token",
            "jwks_url": f"{self.base}/api/lti/security/jwks",
        }

    def services(self) -> dict[str, str]:
        """Of a course."""
        at = f"{self.base}/api/lti/courses/{self.course}"
        return {"roster_url": f"{at}/names_and_roles", "line_items_url": f"{at}/line_items"}

    def line_item_url(self, item: Item) -> str:
        """The address of a column."""
        return f"{self.services()['line_items_url']}/{item.id}"

    def furnish(self) -> None:
        """Three people, and an assignment of the type External Tool."""
        self.people |= {
            "teacher-1": Person(_uuid(1), "Tilda Teacher", "TeacherEnrollment", "tilda@school.invalid"),
            "student-1": Person(_uuid(2), "Ada Student", "StudentEnrollment", "ada@school.invalid"),
            "student-2": Person(_uuid(3), "Ben Student", "StudentEnrollment", "ben@school.invalid"),
        }
        self.add_link("Homework", {}, {"scoreMaximum": 10.0})

    def new_link_id(self) -> str:
        """As Canvas makes them."""
        return _uuid(1000 + len(self.links))

    # --- launches ---------------------------------------------------------------------------------

    def begin(self, person: str, link: str) -> dict[str, str]:
        """As models/lti/lti_advantage_adapter.rb, login_request."""
        verifier = secrets.token_hex(64)
        login_hint = secrets.token_hex(20)
        self.launches[verifier] = person, link, self.now() + LAUNCH_S, login_hint
        hint = {
            "verifier": verifier, "canvas_domain": urlsplit(self.base).netloc, "context_type": "Course",
            "context_id": 10000000000007, "canvas_locale": "en", "include_storage_target": True,
            "exp": int(self.now()) + LAUNCH_S,
        }  # fmt: skip
        return {
            "iss": self.issuer, "login_hint": login_hint, "client_id": self.client_id,
            "lti_deployment_id": self.deployment, "target_link_uri": f"{self.tool}/lti/launch",
            "lti_message_hint": _token(hint), "canvas_environment": "prod",
            "canvas_region": "not_configured", "lti_storage_target": "post_message_forwarding",
        }  # fmt: skip

    def authorize(self, asked: Mapping[str, str], person: str) -> dict[str, str]:
        """As controllers/lti/ims/authentication_controller.rb checks it; errors are posted to the tool."""
        if asked.get("redirect_uri", "").partition("?")[0] != f"{self.tool}/lti/launch":
            raise Refusal(400, "Invalid redirect_uri")
        opened = self.launches.get(_verifier(asked.get("lti_message_hint", "")))
        missing = ",".join(name for name in AUTHORIZE_NEEDS if not asked.get(name))
        error = {}
        if missing:
            error = _error("invalid_request_object", f"The following parameters are missing: {missing}")
        if asked.get("scope") not in (None, "openid"):
            error = _error("invalid_request_object", "The 'scope' must be 'openid'")
        if opened is not None and (opened[0], opened[3]) != (person, asked.get("login_hint")):
            error = _error("login_required", "Must have an active user session")
        if asked.get("client_id") != self.client_id:
            error = _error("unauthorized_client", "Client not authorized in requested context")
        if not error:
            self.launches.pop(_verifier(asked["lti_message_hint"]), None)
            if opened is None or opened[2] < self.now():
                text = "The launch has either expired or already been consumed"
                error = _error("launch_no_longer_valid", text)
        if error or opened is None:
            return {**error, "state": asked.get("state", "")}
        token = signed(self.key, self.claims(self.people[person], self.links.get(opened[1]), asked["nonce"]))
        fields = {"id_token": token, "state": asked.get("state", "")}
        return {**fields, "lti_storage_target": "post_message_forwarding"}

    def claims(self, person: Person, link: Link | None, nonce: str) -> dict[str, Any]:
        """As lib/lti/messages/jwt_message.rb and its two kinds make them, at the privacy level public."""
        moment, services = int(self.now()), self.services()
        given, family = person.parts
        endpoint: dict[str, Any] = {
            "scope": sorted(SCOPES - {SCOPE_ROSTER}),
            "lineitems": services["line_items_url"],
        }
        presentation = {"document_target": "iframe", "locale": "en"}
        presentation["return_url"] = (
            f"{self.base}/courses/{self.course}/external_content/success/external_tool_redirect"
        )
        whole = {
            "iss": self.issuer, "aud": self.client_id, "azp": self.client_id, "iat": moment,
            "exp": moment + VALID_S, "nonce": nonce, "sub": person.id, "locale": "en", "name": person.name,
            "given_name": given, "family_name": family, "email": person.email,
            "picture": f"{self.base}/images/messages/avatar-50.png",
            "https://www.instructure.com/placement": None if link else "assignment_selection",
            **claim(
                message_type=DEEP_LINKING if link is None else RESOURCE, version="1.3.0",
                deployment_id=self.deployment, target_link_uri=f"{self.tool}/lti/launch",
                roles=self.roles(person.role), lti11_legacy_user_id="", launch_presentation=presentation,
                context={
                    "id": self.context, "label": "BA", "title": self.title,
                    "type": ["http://purl.imsglobal.org/vocab/lis/v2/course#CourseOffering"],
                },
                tool_platform={
                    "guid": "x:canvas-lms", "name": "Test Canvas", "version": "cloud",
                    "product_family_code": "canvas",
                },
                lis={
                    "person_sourcedid": "$Person.sourcedId",
                    "course_offering_sourcedid": "$CourseSection.sourcedId",
                },
                role_scope_mentor=[],
            ),
            NRPS: {"context_memberships_url": services["roster_url"], "service_versions": ["2.0"]},
            AGS: endpoint,
        }  # fmt: skip
        if link is None:
            return {**whole, f"{DEEP}deep_linking_settings": self._choosing(), **claim(custom={})}
        if link.item is not None:
            endpoint["lineitem"] = self.line_item_url(self.items[link.item])
        resource = {"id": link.id, "title": link.title, "description": "<p></p>"}
        return {**whole, **claim(resource_link=resource, custom=link.custom)}

    def _choosing(self) -> dict[str, Any]:
        """Settings of deep linking for the placement assignment_selection."""
        data = _token({"nonce": secrets.token_hex(10), "modal": False, "placement": "assignment_selection"})
        return {
            "deep_link_return_url": f"{self.base}/courses/{self.course}/deep_linking_response?data={data}",
            "accept_types": ["ltiResourceLink"],
            "accept_presentation_document_targets": ["iframe", "window"],
            "accept_media_types": "application/vnd.ims.lti.v1.ltilink", "auto_create": False,
            "accept_multiple": False,
        }  # fmt: skip

    @staticmethod
    def roles(enrolment: str) -> list[str]:
        """Of a launch: in the course, in the institution, and of the system."""
        found = {*IN_COURSE[enrolment], f"{ROLE}system/person#User"}
        if enrolment in INSTITUTION:
            found.add(INSTITUTION[enrolment])
        return sorted(found)

    def take_choice(self, token: str) -> None:
        """As controllers/concerns/lti/ims/deep_linking_services checks it. Raises Refusal."""
        claims = self.verified(token)
        if claims.get("iss") != self.client_id or self.issuer not in _listed(claims.get("aud")):
            raise Refusal(400, "the 'aud' is invalid")
        if not self.now() - 300 <= claims.get("iat", 0) <= self.now() + 30 or not claims.get("nonce"):
            raise Refusal(400, "the 'iat' must be less than 300 seconds old, and a nonce is needed")
        self.deep_linked(claims, list(claims.get(f"{DEEP}content_items", [])))

    # --- services ---------------------------------------------------------------------------------

    def take_assertion(self, form: Mapping[str, str]) -> dict[str, Any]:
        """A token, as lib/canvas/oauth gives it. Raises Refusal."""
        claims = self.verified(form.get("client_assertion", ""))
        if claims.get("sub") != self.client_id:
            raise Refusal(401, "unknown client", _error("invalid_client", "unknown client"))
        missing = [name for name in ("sub", "aud", "exp", "iat", "jti", "iss") if not claims.get(name)]
        host = urlsplit(self.base).netloc
        why = ""
        if missing:
            why = f"the following assertions are missing: {','.join(missing)}"
        elif not {f"{self.base}/login/oauth2/token", host} & set(_listed(claims["aud"])):
            why = "the 'aud' is invalid"
        elif not self.now() - 300 <= claims["iat"] <= self.now() + 30:
            why = "the 'iat' must be less than 300 seconds old"
        scopes = frozenset(form.get("scope", "").split())
        if why:
            raise Refusal(400, why, _error("invalid_request", why))
        if scopes - SCOPES:
            raise Refusal(400, "scope", _error("invalid_scope", "A requested scope is invalid"))
        return {
            "access_token": self.give_token(scopes), "token_type": "Bearer", "expires_in": 3600,
            "scope": " ".join(sorted(scopes)),
        }  # fmt: skip

    def members(self) -> list[dict[str, Any]]:
        """As the names_and_roles controller lists them: who has an active place, with roles of the course."""
        return [
            {
                "status": "Active", "user_id": one.id, "lti11_legacy_user_id": "", "name": one.name,
                "given_name": one.parts[0], "family_name": one.parts[1], "email": one.email,
                "picture": f"{self.base}/images/messages/avatar-50.png", "roles": list(IN_COURSE[one.role]),
            }
            for one in self.people.values()
            if IN_COURSE[one.role]
        ]  # fmt: skip

    def take_score(self, item: Item, said: Mapping[str, Any]) -> None:
        """As controllers/lti/ims/scores_controller.rb takes it. Raises Refusal."""
        person = self.find_person(said.get("userId"))
        if person is None or person.role not in ("StudentEnrollment", "StudentViewEnrollment"):
            raise _unprocessable("User not found in course or is not a student")
        for name in ("userId", "activityProgress", "gradingProgress", "timestamp"):
            if not said.get(name):
                raise Refusal(400, name, {"errors": [{"message": f"{name} is missing"}]})
        known = item.scores.setdefault(person.id, Score())
        stamp = datetime.fromisoformat(str(said["timestamp"])).timestamp()
        if stamp < known.stamp:
            raise Refusal(400, "Provided timestamp before last updated timestamp")
        reset = said["gradingProgress"] not in ("FullyGraded", "PendingManual") or "scoreGiven" not in said
        if not reset and not said.get("scoreMaximum"):
            raise _unprocessable("ScoreMaximum not supplied when ScoreGiven present.")
        self._submit(known, said)
        if reset:
            known.points = None
        else:
            known.points = said["scoreGiven"] / said["scoreMaximum"] * item.most
        if said.get("comment"):
            known.comments.append(str(said["comment"]))
        known.stamp = stamp

    def _submit(self, known: Score, said: Mapping[str, Any]) -> None:
        """Another attempt, unless it is said that it is none, or the time of submission is the one known."""
        extension = said.get(CANVAS_SUBMISSION) or {}
        if extension.get("new_submission") is False or extension.get("submission_type") == "none":
            return
        at = (said.get("submission") or {}).get("submittedAt") or extension.get("submitted_at")
        changed = at is None or at != known.submitted_at
        if changed and self.allowed_attempts and known.attempts >= self.allowed_attempts:
            raise _unprocessable(
                "The maximum number of allowed attempts has been reached for this submission"
            )
        if said["activityProgress"] in ("Submitted", "Completed") and changed:
            known.attempts += 1
            known.submitted_at = str(at or said["timestamp"])

    def results(self, item: Item) -> list[dict[str, Any]]:
        """As controllers/lti/ims/results_controller.rb lists them."""
        url = self.line_item_url(item)
        return [
            {"id": f"{url}/results/{number}", "scoreOf": url, "userId": user}
            | (
                {"resultScore": score.points, "resultMaximum": item.most}
                if score.points is not None
                else {}
            )
            for number, (user, score) in enumerate(sorted(item.scores.items()))
        ]  # fmt: skip

    def item_json(self, item: Item) -> dict[str, Any]:
        """A column, as its serializer has it: what is empty is left out."""
        whole = {
            "id": self.line_item_url(item), "scoreMaximum": item.most, "label": item.label,
            "resourceId": item.resource, "tag": item.tag, "resourceLinkId": item.link,
        }  # fmt: skip
        return {name: value for name, value in whole.items() if value != ""}

    # --- dynamic registration ---------------------------------------------------------------------

    def configuration(self) -> dict[str, Any]:
        """As controllers/security_controller.rb, openid_configuration."""
        host = urlsplit(self.base).netloc
        placements = [
            f"{CANVAS_TOOL}{one}" for one in ("assignment_selection", "link_selection", "editor_button")
        ]
        return {
            "issuer": self.issuer, "authorization_endpoint": f"{self.base}/api/lti/authorize_redirect",
            "registration_endpoint": f"{self.base}/api/lti/registrations",
            "jwks_uri": f"{self.base}/api/lti/security/jwks",
            "token_endpoint": f"{self.base}/login/oauth2/token", "authorization_server": host,
            "token_endpoint_auth_methods_supported": ["private_key_jwt"],
            "scopes_supported": ["openid", *sorted(SCOPES)], "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "https://purl.imsglobal.org/spec/lti-platform-configuration": {
                "product_family_code": "canvas", "version": "OpenSource",
                "messages_supported": [
                    {"type": RESOURCE, "placements": placements},
                    {"type": DEEP_LINKING, "placements": placements},
                ],
                "variables": [], f"{CANVAS_TOOL}account_name": "School", f"{CANVAS_TOOL}account_domain": host,
            },
        }  # fmt: skip

    def invite(self) -> dict[str, str]:
        """What Canvas adds to the tool's registration link; the address has the token, too."""
        token = secrets.token_urlsafe(16)
        self.invitations.add(token)
        address = f"{self.base}/api/lti/security/openid-configuration?registration_token={token}"
        return {"openid_configuration": address, "registration_token": token}

    def register(self, header: str, said: Mapping[str, Any]) -> dict[str, Any]:
        """As models/lti/ims/registration.rb and lib/schemas check it. Raises Refusal."""
        token = header.removeprefix("Bearer ")
        if token not in self.invitations:
            raise Refusal(401, "used", {"errorMessage": "Registration token has already been used"})
        own = "https://purl.imsglobal.org/spec/lti-tool-configuration"
        tool = said.get(own) or {}
        errors = [name for name in REGISTRATION_NEEDS if not said.get(name)]
        errors += [name for name in ("domain", "target_link_uri", "messages", "claims") if not tool.get(name)]
        if errors:
            raise Refusal(422, "schema", {"errors": errors})
        self.invitations.discard(token)
        for message in tool["messages"]:  # the first message of a placement counts
            for placement in message.get("placements") or ["link_selection"]:
                self.placements.setdefault(placement.removeprefix(CANVAS_TOOL), message["type"])
        config = f"{self.base}/api/lti/registrations/1/view"
        return {
            **said,
            "client_id": self.client_id,
            own: {**tool, f"{CANVAS_TOOL}registration_config_url": config},
        }


def _uuid(number: int) -> str:
    return f"{number:08x}-5fd0-4b1e-9c0a-0123456789ab"


def _token(claims: Mapping[str, Any]) -> str:
    """Three parts, as the tokens that Canvas signs for itself; nobody here checks them."""
    parts = ('{"typ":"JWT","alg":"HS256"}', json.dumps(claims), secrets.token_hex(16))
    return ".".join(urlsafe_b64encode(one.encode()).decode().rstrip("=") for one in parts)


def _verifier(hint: str) -> str:
    parts = hint.split(".")
    try:
        return str(json.loads(urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))["verifier"])
    except (ValueError, KeyError, IndexError):
        raise Refusal(400, "Invalid lti_message_hint") from None


def _error(code: str, text: str) -> dict[str, str]:
    return {"error": code, "error_description": text}


def _unprocessable(message: str) -> Refusal:
    return Refusal(422, message, {"errors": {"type": "unprocessable_content", "message": message}})


def _listed(value: object) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else [str(value)]
