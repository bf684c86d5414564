"""A Moodle: what its activity External tool sends, asks for and refuses (mod_lti of Moodle 5).

Names of files are below `mod/lti` of Moodle's source, those of services below `mod/lti/service`.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html import escape
from typing import Any

from cli.dev.platforms.world import Item, Link, Person, Refusal, Score, World, claim
from grading.integrations.lti.keys import signed
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

VALID_S = 60
"""Life of a launch (locallib.php, lti_sign_jwt)."""
SCOPES = frozenset({SCOPE_LINE_ITEMS, SCOPE_RESULTS, SCOPE_SCORES, SCOPE_ROSTER})
TEACHES = frozenset({"teacher", "editingteacher", "manager", "enrolled-manager", "admin"})
"""Archetypes with the capability mod/lti:manage (db/access.php)."""
EDITS = TEACHES - {"teacher"}
"""Archetypes with moodle/course:manageactivities; `teacher` is the non-editing one."""
IN_ROSTER = frozenset({"student", "teacher", "editingteacher", "enrolled-manager", "lti-admin"})
"""Who is enrolled; `lti-admin` has a role made on the site, with mod/lti:admin alone."""


@dataclass
class Moodle(World):
    """One site, whose address is its issuer."""

    context: str = "42"
    launches: dict[str, tuple[str, str]] = field(default_factory=dict)
    """What its session keeps of a launch until it was answered: who opens which link."""

    @property
    def issuer(self) -> str:
        """$CFG->wwwroot."""
        return self.base

    def addresses(self) -> dict[str, str]:
        """Of its files."""
        at = f"{self.base}/mod/lti"
        return {
            "authorize_url": f"{at}/auth.php",
            "token_url": f"{at}/token.php",
            "jwks_url": f"{at}/certs.php",
        }

    def services(self) -> dict[str, str]:
        """Below services.php."""
        at = f"{self.base}/mod/lti/services.php"
        return {
            "roster_url": f"{at}/CourseSection/{self.context}/bindings/{self.deployment}/memberships",
            "line_items_url": f"{at}/{self.context}/lineitems?type_id={self.deployment}",
        }

    def line_item_url(self, item: Item) -> str:
        """The address of a column."""
        at = f"{self.base}/mod/lti/services.php/{self.context}/lineitems"
        return f"{at}/{item.id}/lineitem?type_id={self.deployment}"

    def furnish(self) -> None:
        """Three people and a link."""
        self.people |= {
            "teacher-1": Person("1001", "Tilda Teacher", "editingteacher", "tilda@school.invalid"),
            "student-1": Person("1002", "Ada Student", "student", "ada@school.invalid"),
            "student-2": Person("1003", "Ben Student", "student", "ben@school.invalid"),
        }
        self.links["link-1"] = Link("1", "Homework")

    # --- launches ---------------------------------------------------------------------------------

    def begin(self, person: str, link: str) -> dict[str, str]:
        """As lti_build_login_request has it; the hint of deep linking has no cmid (contentitem.php)."""
        kind = f"ltilaunch{self.links[link].id}_" if link else "ltilaunch_ContentItemSelectionRequest"
        launch = f"{kind}{secrets.randbelow(10**9)}"
        self.launches[launch] = person, link
        hint = (
            f'{{"cmid":{self.links[link].id},"launchid":"{launch}"}}'
            if link
            else f'{{"launchid":"{launch}"}}'
        )
        return {
            "iss": self.issuer, "target_link_uri": f"{self.tool}/lti/launch",
            "login_hint": self.people[person].id, "lti_message_hint": hint, "client_id": self.client_id,
            "lti_deployment_id": self.deployment,
        }  # fmt: skip

    def authorize(self, asked: Mapping[str, str], person: str) -> dict[str, str]:
        """As auth.php checks it. A launch is used up by the first answer, whatever becomes of it."""
        needed = ("scope", "response_type", "client_id", "redirect_uri", "login_hint", "nonce")
        hint = re.search(r'"launchid":"([^"]+)"', asked.get("lti_message_hint", ""))
        opened = self.launches.pop(hint[1], None) if hint else None
        good = asked.get("scope") == "openid" and asked.get("response_type") == "id_token"
        known = opened is not None and asked.get("redirect_uri") == f"{self.tool}/lti/launch"
        if opened is None or not (good and known and all(asked.get(name) for name in needed)):
            raise Refusal(404, "Invalid request")  # its own page: nothing of this reaches the tool
        error = {}
        if asked["client_id"] != self.client_id:
            error = {"error": "unauthorized_client"}
        elif person != opened[0] or asked["login_hint"] != self.people[person].id:
            error = {"error": "access_denied"}
        elif asked.get("response_mode") != "form_post":
            error = {"error": "invalid_request", "error_description": "Invalid response_mode"}
        elif asked.get("prompt", "none") != "none":
            error = {"error": "invalid_request", "error_description": "Invalid prompt"}
        if error:
            return {**error, "state": asked.get("state", "")}
        claims = self.claims(self.people[person], self.links.get(opened[1]), asked["nonce"])
        if '"cmid"' not in asked["lti_message_hint"] and "lineitem" in claims[AGS]:
            claims[AGS]["lineitem"] = ""  # gradebookservices' lineitem.php finds no activity
        token = signed(self.key, claims)
        return {"id_token": token, "state": asked.get("state", "")}

    def claims(self, person: Person, link: Link | None, nonce: str) -> dict[str, Any]:
        """As lti_build_standard_message, lti_get_jwt_claim_mapping and lti_sign_jwt make them."""
        moment, services = int(self.now()), self.services()
        given, family = person.parts
        endpoint: dict[str, Any] = {
            "scope": sorted({SCOPE_LINE_ITEMS, SCOPE_RESULTS, SCOPE_SCORES}),
            "lineitems": services["line_items_url"],
        }
        presentation = {"locale": "en", "document_target": "iframe"}
        presentation["return_url"] = f"{self.base}/mod/lti/return.php?course={self.context}&sesskey=x"
        whole = {
            "iss": self.issuer, "sub": person.id, "aud": self.client_id, "nonce": nonce,
            "iat": moment, "exp": moment + VALID_S, "given_name": given, "family_name": family,
            "name": person.name, "email": person.email,
            **claim(
                version="1.3.0", deployment_id=self.deployment, target_link_uri=f"{self.tool}/lti/launch",
                roles=self.roles(person.role, EDITS if link is None else TEACHES),
                message_type=DEEP_LINKING if link is None else RESOURCE,
                context={"id": self.context, "label": "BA", "title": self.title, "type": ["CourseSection"]},
                lis={"person_sourcedid": "", "course_section_sourcedid": ""},
                tool_platform={
                    "product_family_code": "moodle", "version": "2025100600.13", "guid": "localhost",
                    "name": "Test Moodle", "description": "A Moodle to try with",
                },
                launch_presentation=presentation if link else {"locale": "en"},
                ext={"lms": "moodle-2"},
            ),
            AGS: endpoint,
        }  # fmt: skip
        if link is None:
            return {**whole, f"{DEEP}deep_linking_settings": self._choosing()}
        if link.item is not None:
            endpoint["lineitem"] = self.line_item_url(self.items[link.item])
        roster = {"context_memberships_url": services["roster_url"], "service_versions": ["1.0", "2.0"]}
        resource = {"id": link.id, "title": link.title, "description": ""}
        return {**whole, NRPS: roster, **claim(resource_link=resource, custom=link.custom)}

    def _choosing(self) -> dict[str, Any]:
        """Settings of deep linking: Moodle sends no `data`."""
        address = (
            f"{self.base}/mod/lti/contentitem_return.php?course={self.context}&id={self.deployment}&sesskey=x"
        )
        return {
            "accept_types": ["ltiResourceLink"],
            "accept_presentation_document_targets": ["frame", "iframe", "window"], "accept_multiple": True,
            "accept_copy_advice": False, "accept_unsigned": False, "auto_create": False, "can_confirm": False,
            "deep_link_return_url": address, "title": "", "text": "",
        }  # fmt: skip

    @staticmethod
    def roles(archetype: str, teaching: frozenset[str]) -> list[str]:
        """As lti_get_ims_role says them: never a teaching assistant."""
        found = [f"{ROLE}membership#{'Instructor' if archetype in teaching else 'Learner'}"]
        if archetype in ("admin", "lti-admin"):
            found = [one for one in found if not one.endswith("Learner")]
            found += [f"{ROLE}system/person#Administrator", f"{ROLE}institution/person#Administrator"]
        return sorted(found)

    def take_choice(self, token: str) -> None:
        """What contentitem_return.php takes: signed by this client, issued in the past. Raises Refusal."""
        claims = self.verified(token)
        if claims.get("iss") != self.client_id:
            raise Refusal(400, "Consumer key is incorrect")
        if claims.get("iat", 0) > self.now():
            raise Refusal(400, "Cannot handle token with iat prior to now")
        self.deep_linked(claims, list(claims.get(f"{DEEP}content_items", [])))

    # --- services ---------------------------------------------------------------------------------

    def take_assertion(self, form: Mapping[str, str]) -> dict[str, Any]:
        """A token, as token.php gives it. Raises Refusal."""
        claims = self.verified(form.get("client_assertion", ""))
        if claims.get("sub") != self.client_id:
            raise Refusal(400, "invalid_client")
        if not claims.get("iat", 0) <= self.now() < claims.get("exp", 0):
            raise Refusal(400, "Cannot handle token with iat prior to now")
        scopes = frozenset(form.get("scope", "").split()) & SCOPES
        if not scopes:
            raise Refusal(400, "invalid_scope")
        return {
            "access_token": self.give_token(scopes), "token_type": "Bearer", "expires_in": 3600,
            "scope": " ".join(sorted(scopes)),
        }  # fmt: skip

    def members(self) -> list[dict[str, Any]]:
        """As memberships' get_members_json lists them: bare roles, and everything as HTML writes it."""
        return [
            {
                "status": "Active", "roles": self.roster_roles(one.role), "user_id": one.id,
                "lis_person_sourcedid": "", "name": escape(one.name, quote=False),
                "given_name": escape(one.parts[0], quote=False),
                "family_name": escape(one.parts[1], quote=False), "email": escape(one.email, quote=False),
            }
            for one in self.people.values()
            if one.role in IN_ROSTER
        ]  # fmt: skip

    @staticmethod
    def roster_roles(archetype: str) -> list[str]:
        """By moodle/course:manageactivities, so that non-editing teachers are learners here."""
        return ["Instructor" if archetype in ("editingteacher", "enrolled-manager") else "Learner"]

    def take_score(self, item: Item, said: Mapping[str, Any]) -> None:
        """As gradebookservices' scores.php and save_grade_item take it. Raises Refusal."""
        person = self.find_person(said.get("userId"))
        moment = _moment(said.get("timestamp"))
        given, most = said.get("scoreGiven"), said.get("scoreMaximum")
        numbers = isinstance(given, int | float) and isinstance(most, int | float) and bool(most)
        whole = all(said.get(name) for name in ("gradingProgress", "activityProgress"))
        if (
            person is None
            or person.role != "student"
            or moment is None
            or not whole
            or not (given is None or numbers)
        ):
            raise Refusal(400, "Incorrect score received")
        known = item.scores.setdefault(person.id, Score())
        if known.stamp >= moment:  # both in whole seconds
            raise Refusal(409, "Refusing score with an earlier timestamp")
        taken = numbers and said["gradingProgress"] == "FullyGraded"
        known.points = min(item.most, float(given or 0) / float(most or 1) * item.most) if taken else None
        known.comments = [str(said["comment"])] if said.get("comment") else []
        known.stamp = moment

    def results(self, item: Item) -> list[dict[str, Any]]:
        """As gradebookservices' results.php lists them."""
        url = self.line_item_url(item).replace("/lineitem?", "/lineitem/results?")
        return [
            {"id": f"{url}&user_id={user}", "userId": user}
            | (
                {
                    "resultScore": score.points, "resultMaximum": item.most,
                    "scoreOf": self.line_item_url(item), "comment": "".join(score.comments),
                    "timestamp": datetime.fromtimestamp(score.stamp, UTC).isoformat(),
                }
                if score.points is not None
                else {}
            )
            for user, score in sorted(item.scores.items())
        ]  # fmt: skip

    def item_json(self, item: Item) -> dict[str, Any]:
        """A column, as gradebookservices' item_for_json has it."""
        linked = {"resourceLinkId": item.link, "ltiLinkId": item.link} if item.link else {}
        return {
            "id": self.line_item_url(item), "label": item.label, "scoreMaximum": item.most,
            "resourceId": item.resource, "tag": item.tag, **linked,
        }  # fmt: skip

    # --- dynamic registration ---------------------------------------------------------------------

    def configuration(self) -> dict[str, Any]:
        """As openid-configuration.php says it."""
        at = f"{self.base}/mod/lti"
        return {
            "issuer": self.issuer, "token_endpoint": f"{at}/token.php",
            "token_endpoint_auth_methods_supported": ["private_key_jwt"],
            "token_endpoint_auth_signing_alg_values_supported": ["RS256"], "jwks_uri": f"{at}/certs.php",
            "authorization_endpoint": f"{at}/auth.php",
            "registration_endpoint": f"{at}/openid-registration.php",
            "scopes_supported": [*sorted(SCOPES), "openid"], "response_types_supported": ["id_token"],
            "subject_types_supported": ["public", "pairwise"],
            "id_token_signing_alg_values_supported": ["RS256"],
            "claims_supported": ["sub", "iss", "name", "given_name", "family_name", "email"],
            "https://purl.imsglobal.org/spec/lti-platform-configuration": {
                "product_family_code": "moodle", "version": "5.1+ (Build: 20251121)",
                "messages_supported": [
                    {"type": RESOURCE},
                    {"type": DEEP_LINKING, "placements": ["ContentArea"]},
                ],
                "variables": ["User.id"],
            },
        }  # fmt: skip

    def invite(self) -> dict[str, str]:
        """What startltiadvregistration.php adds to the tool's registration link."""
        token = secrets.token_urlsafe(16)
        self.invitations.add(token)
        return {
            "openid_configuration": f"{self.base}/mod/lti/openid-configuration.php",
            "registration_token": token,
        }

    def register(self, header: str, said: Mapping[str, Any]) -> dict[str, Any]:
        """As openid-registration.php and registration_helper answer. Raises Refusal."""
        token = header.removeprefix("Bearer ")
        if token not in self.invitations:
            raise Refusal(401, "token_already_used" if token else "missing_registration_token")
        own = "https://purl.imsglobal.org/spec/lti-tool-configuration"
        for name in (
            "response_types", "initiate_login_uri", "redirect_uris", "client_name", "jwks_uri",
            "token_endpoint_auth_method", own,
        ):  # fmt: skip
            if not said.get(name):
                raise Refusal(400, f"missing required attribute {name}")
        if not said[own].get("domain"):
            raise Refusal(400, "missing_domain")
        self.invitations.discard(token)
        return {
            "client_id": self.client_id, "response_types": ["id_token"], "jwks_uri": said["jwks_uri"],
            "initiate_login_uri": said["initiate_login_uri"], "redirect_uris": said["redirect_uris"],
            "application_type": "web", "client_name": said["client_name"], "scope": said.get("scope", ""),
            own: {**said[own], "version": "1.3.0", "deployment_id": self.deployment},
        }  # fmt: skip


def _moment(text: object) -> float | None:
    """As strtotime reads it: fractions of a second are lost."""
    try:
        return int(datetime.fromisoformat(str(text)).timestamp())
    except ValueError:
        return None
