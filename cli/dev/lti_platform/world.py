"""What the test platform knows: people, links, columns with their scores; and what it signs."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from grading.integrations.lti.keys import ToolKey, new_key, public_jwk, signed
from grading.integrations.lti.values import (
    AGS,
    CLAIM,
    DEEP,
    DEEP_LINKING,
    NRPS,
    RESOURCE,
    ROLE,
    SCOPE_LINE_ITEMS,
    SCOPE_RESULTS,
    SCOPE_SCORES,
)

VALID_S = 300


@dataclass(frozen=True)
class Person:
    """Somebody in the platform's course."""

    id: str
    name: str
    role: str
    """Instructor, Learner or ContentDeveloper, as LTI calls them."""
    email: str = ""


@dataclass
class Link:
    """A link in the course."""

    id: str
    title: str
    custom: dict[str, str] = field(default_factory=dict)
    item: int | None = None


@dataclass
class Item:
    """A column of the gradebook."""

    id: int
    label: str
    most: float
    link: str = ""
    resource: str = ""
    tag: str = ""
    scores: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Person -> their last score."""
    stamps: dict[str, datetime] = field(default_factory=dict)


class Refusal(Exception):
    """A request that the platform refuses, with its status."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


@dataclass
class World:
    """One platform with one course and one tool."""

    base: str
    """Its address, which is its issuer, too."""
    tool: str
    """The tool's address."""
    client_id: str = "grader-client"
    deployment: str = "1"
    context: str = "course-1"
    title: str = "Business analytics, in the learning platform"
    page: int = 2
    """People and results of one page."""
    key: ToolKey = field(default_factory=new_key)
    people: dict[str, Person] = field(default_factory=dict)
    links: dict[str, Link] = field(default_factory=dict)
    items: dict[int, Item] = field(default_factory=dict)
    tokens: dict[str, tuple[float, frozenset[str]]] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    """Assertions that were used."""
    log: list[dict[str, Any]] = field(default_factory=list)
    """Every score that arrived, with what became of it."""
    register_tokens: set[str] = field(default_factory=set)
    fetched: int = 0
    """How often somebody asked for its keys."""
    clock_offset_s: float = 0.0
    """Shifts its clock, for tests."""
    lock: threading.RLock = field(default_factory=threading.RLock)

    @classmethod
    def furnished(cls, base: str, tool: str) -> World:
        """With a teacher, two students and a link that leads nowhere yet."""
        made = cls(base, tool)
        for one in (
            Person("teacher-1", "Tilda Teacher", "Instructor", "tilda@school.invalid"),
            Person("student-1", "Ada Student", "Learner", "ada@school.invalid"),
            Person("student-2", "Ben Student", "Learner", "ben@school.invalid"),
        ):
            made.people[one.id] = one
        made.links["link-1"] = Link("link-1", "Homework")
        return made

    def now(self) -> float:
        """Its time, in seconds."""
        return time.time() + self.clock_offset_s

    def jwks(self) -> dict[str, Any]:
        """Its keys."""
        self.fetched += 1
        return {"keys": [public_jwk(self.key)]}

    def add_link(self, title: str, custom: Mapping[str, str], column: Mapping[str, Any] | None) -> Link:
        """A link that an instructor placed, with its column."""
        with self.lock:
            link = Link(f"link-{len(self.links) + 1}", title, dict(custom))
            if column is not None:
                made = self.add_item({**column, "resourceLinkId": link.id})
                link.item = made.id
            self.links[link.id] = link
            return link

    def add_item(self, fields: Mapping[str, Any]) -> Item:
        """A new column. Raises Refusal."""
        most = fields.get("scoreMaximum")
        if not isinstance(most, int | float) or most <= 0 or not str(fields.get("label") or ""):
            raise Refusal(400, "a column needs a label and a scoreMaximum above 0")
        with self.lock:
            item = Item(
                max(self.items, default=0) + 1, str(fields["label"]), float(most),
                str(fields.get("resourceLinkId") or ""), str(fields.get("resourceId") or ""),
                str(fields.get("tag") or ""),
            )  # fmt: skip
            self.items[item.id] = item
            return item

    def score(self, item_id: int, fields: Mapping[str, Any]) -> None:
        """Take a score. Raises Refusal for what the services' specification forbids."""
        with self.lock:
            entry = {"item": item_id, **fields}
            self.log.append(entry)
            try:
                self._score(self.items[item_id], fields)
            except Refusal as refusal:
                entry["refused"] = refusal.status
                raise

    def _score(self, item: Item, fields: Mapping[str, Any]) -> None:
        user = str(fields.get("userId"))
        if user not in self.people:
            raise Refusal(404, "nobody of that id is in the course")
        if fields.get("activityProgress") not in (
            "Initialized",
            "Started",
            "InProgress",
            "Submitted",
            "Completed",
        ):
            raise Refusal(400, "activityProgress is missing")
        if fields.get("gradingProgress") not in (
            "FullyGraded",
            "Pending",
            "PendingManual",
            "Failed",
            "NotReady",
        ):
            raise Refusal(400, "gradingProgress is missing")
        if "scoreGiven" in fields and not fields.get("scoreMaximum"):
            raise Refusal(400, "scoreGiven needs a scoreMaximum")
        moment = _moment(fields.get("timestamp"))
        if user in item.stamps and moment <= item.stamps[user]:
            raise Refusal(409, "the timestamp is not later than that of the last score")
        item.stamps[user] = moment
        if fields["gradingProgress"] in ("FullyGraded",) and "scoreGiven" in fields:
            item.scores[user] = dict(fields)
        elif "scoreGiven" not in fields:
            item.scores.pop(user, None)

    def results(self, item: Item) -> list[dict[str, Any]]:
        """What the gradebook has, in the size of the column."""
        url = f"{self.base}/lineitems/{item.id}"
        return [
            {
                "id": f"{url}/results/{user}", "scoreOf": url, "userId": user,
                "resultScore": score["scoreGiven"] / score["scoreMaximum"] * item.most,
                "resultMaximum": item.most, "comment": score.get("comment", ""),
            }
            for user, score in sorted(item.scores.items())
        ]  # fmt: skip

    def claims(self, person: Person, link: Link | None, nonce: str) -> dict[str, Any]:
        """What a launch says; without a link it is for deep linking."""
        moment = int(self.now())
        endpoint: dict[str, Any] = {
            "scope": [SCOPE_LINE_ITEMS, SCOPE_RESULTS, SCOPE_SCORES],
            "lineitems": f"{self.base}/lineitems",
        }
        claims: dict[str, Any] = {
            "iss": self.base, "sub": person.id, "aud": self.client_id, "nonce": nonce,
            "iat": moment, "exp": moment + VALID_S, "name": person.name, "email": person.email,
            f"{CLAIM}version": "1.3.0",
            f"{CLAIM}deployment_id": self.deployment,
            f"{CLAIM}target_link_uri": f"{self.tool}/lti/launch",
            f"{CLAIM}roles": [f"{ROLE}membership#{person.role}"],
            f"{CLAIM}context": {"id": self.context, "title": self.title, "label": "BA"},
            NRPS: {"context_memberships_url": f"{self.base}/memberships", "service_versions": ["2.0"]},
            AGS: endpoint,
        }  # fmt: skip
        if link is None:
            settings: dict[str, Any] = {
                "deep_link_return_url": f"{self.base}/deep",
                "accept_types": ["ltiResourceLink"],
            }
            settings |= {"accept_multiple": True, "data": "kept by the platform"}
            claims[f"{DEEP}deep_linking_settings"] = settings
            return {**claims, f"{CLAIM}message_type": DEEP_LINKING}
        if link.item is not None:
            endpoint["lineitem"] = f"{self.base}/lineitems/{link.item}"
        claims[f"{CLAIM}resource_link"] = {"id": link.id, "title": link.title}
        claims[f"{CLAIM}custom"] = dict(link.custom)
        return {**claims, f"{CLAIM}message_type": RESOURCE}

    def id_token(self, person: Person, link: Link | None, nonce: str) -> str:
        """A launch, signed."""
        return signed(self.key, self.claims(person, link, nonce))

    def give_token(self, scopes: frozenset[str]) -> str:
        """A token for these."""
        with self.lock:
            token = secrets.token_urlsafe(24)
            self.tokens[token] = time.monotonic() + 3600, scopes
            return token

    def require(self, header: str, scope: str) -> None:
        """Go on with a valid token of this scope. Raises Refusal."""
        until, scopes = self.tokens.get(header.removeprefix("Bearer "), (0.0, frozenset()))
        if until < time.monotonic():
            raise Refusal(401, "no valid token")
        if scope not in scopes:
            raise Refusal(403, f"the token is not for {scope}")


def _moment(text: object) -> datetime:
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        raise Refusal(400, "the timestamp cannot be read") from None
    if moment.tzinfo is None or "." not in str(text):
        raise Refusal(400, "the timestamp needs a time zone and parts of a second")
    return moment
