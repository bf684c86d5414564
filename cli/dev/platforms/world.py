"""What both platforms have: people, one course, links, a gradebook, tokens and keys."""

from __future__ import annotations

import secrets
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import requests
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from grading.integrations.lti.keys import ToolKey, new_key, public_jwk
from grading.integrations.lti.values import CLAIM

TIMEOUT_S = 15.0
TOKEN_S = 3600


@dataclass(frozen=True)
class Person:
    """Somebody in the platform's course."""

    id: str
    """As the platform's messages call them."""
    name: str
    role: str
    """As the product calls it: a Moodle archetype, a Canvas enrolment."""
    email: str = ""

    @property
    def parts(self) -> tuple[str, str]:
        """Given and family name."""
        given, _, family = self.name.rpartition(" ")
        return given, family


@dataclass
class Link:
    """A link in the course."""

    id: str
    title: str
    custom: dict[str, str] = field(default_factory=dict)
    item: int | None = None


@dataclass
class Score:
    """What the gradebook has of one person in one column."""

    points: float | None = None
    """In the measure of the column."""
    comments: list[str] = field(default_factory=list)
    stamp: float = 0.0
    """Time of the last score that was taken, in seconds."""
    submitted_at: str = ""
    attempts: int = 0


@dataclass
class Item:
    """A column of the gradebook."""

    id: int
    label: str
    most: float
    link: str = ""
    """The link it belongs to."""
    resource: str = ""
    tag: str = ""
    scores: dict[str, Score] = field(default_factory=dict)
    """Of people by their id."""


class Refusal(Exception):
    """A request that the platform refuses, with the status and the body of its answer."""

    def __init__(self, status: int, why: str, body: Any = None, retry_after: int | None = None) -> None:
        super().__init__(why)
        self.status, self.body = status, {"error": why} if body is None else body
        self.headers = {} if retry_after is None else {"Retry-After": str(retry_after)}


@dataclass
class World(ABC):
    """One platform with one course and one tool."""

    base: str
    """Its address."""
    tool: str
    """The tool's address."""
    client_id: str = "grader-client"
    deployment: str = "1"
    context: str = "course-1"
    title: str = "Business analytics, in the learning platform"
    key: ToolKey = field(default_factory=new_key)
    people: dict[str, Person] = field(default_factory=dict)
    """By the name they sign in with."""
    links: dict[str, Link] = field(default_factory=dict)
    items: dict[int, Item] = field(default_factory=dict)
    tokens: dict[str, tuple[float, frozenset[str]]] = field(default_factory=dict)
    log: list[dict[str, Any]] = field(default_factory=list)
    """Every score that arrived; with `refused`, where it was."""
    answers: list[dict[str, Any]] = field(default_factory=list)
    """Claims of what the tool returned by deep linking."""
    invitations: set[str] = field(default_factory=set)
    """Registration tokens that were not used yet."""
    fetched: int = 0
    """How often somebody asked for its keys."""
    clock_offset_s: float = 0.0
    """Shifts its clock, for tests."""
    lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    @abstractmethod
    def issuer(self) -> str:
        """The issuer of its launches."""

    @abstractmethod
    def addresses(self) -> dict[str, str]:
        """Its authorize_url, token_url and jwks_url, as the tool registers them."""

    @abstractmethod
    def services(self) -> dict[str, str]:
        """Its roster_url and line_items_url, as launches name them."""

    @abstractmethod
    def furnish(self) -> None:
        """A teacher, two students, and a link that leads nowhere yet."""

    @abstractmethod
    def begin(self, person: str, link: str) -> dict[str, str]:
        """What it sends to the tool's login, for a person who opens a link, or chooses one for ''."""

    @abstractmethod
    def authorize(self, asked: Mapping[str, str], person: str) -> dict[str, str]:
        """What it posts to the tool's launch, for the person whose session asks. Raises Refusal."""

    @abstractmethod
    def claims(self, person: Person, link: Link | None, nonce: str) -> dict[str, Any]:
        """What a launch says; without a link it is for deep linking."""

    @abstractmethod
    def take_score(self, item: Item, said: Mapping[str, Any]) -> None:
        """Take a score into a column. Raises Refusal."""

    def score(self, item_id: int, said: Mapping[str, Any]) -> None:
        """Log a score and take it. Raises Refusal."""
        with self.lock:
            entry = {"item": item_id, **said}
            self.log.append(entry)
            try:
                self.take_score(self.items[item_id], said)
            except Refusal as refusal:
                entry["refused"] = refusal.status
                raise

    def now(self) -> float:
        """Its time, in seconds."""
        return time.time() + self.clock_offset_s

    def jwks(self) -> dict[str, Any]:
        """Its keys."""
        self.fetched += 1
        return {"keys": [public_jwk(self.key)]}

    def of(self, person: str, item: int = 1) -> Score:
        """What the gradebook has of a person; nothing yet is an empty score."""
        return self.items[item].scores.get(self.people[person].id, Score())

    def add_link(self, title: str, custom: Mapping[str, str], column: Mapping[str, Any] | None) -> Link:
        """A link that an instructor placed, with its column."""
        with self.lock:
            link = Link(self.new_link_id(), title, dict(custom))
            if column is not None:
                link.item = self.add_item({**column, "label": title, "resourceLinkId": link.id}).id
            self.links[f"link-{len(self.links) + 1}"] = link
            return link

    def new_link_id(self) -> str:
        """The id of the next link."""
        return str(len(self.links) + 1)

    def add_item(self, said: Mapping[str, Any]) -> Item:
        """A new column."""
        with self.lock:
            item = Item(
                max(self.items, default=0) + 1, str(said["label"]), float(said["scoreMaximum"]),
                str(said.get("resourceLinkId") or ""), str(said.get("resourceId") or ""),
                str(said.get("tag") or ""),
            )  # fmt: skip
            self.items[item.id] = item
            return item

    def find_person(self, number: object) -> Person | None:
        """Somebody by their id."""
        return next((one for one in self.people.values() if one.id == str(number)), None)

    def give_token(self, scopes: frozenset[str]) -> str:
        """A token for these."""
        with self.lock:
            token = secrets.token_urlsafe(24)
            self.tokens[token] = time.monotonic() + TOKEN_S, scopes
            return token

    def holds(self, header: str, *scopes: str) -> bool:
        """Whether a header `Authorization` has a valid token for one of these."""
        until, held = self.tokens.get(header.removeprefix("Bearer "), (0.0, frozenset[str]()))
        return until > time.monotonic() and bool(held & set(scopes))

    def deep_linked(self, claims: Mapping[str, Any], items: list[dict[str, Any]]) -> None:
        """Place what an instructor chose in the tool."""
        self.answers.append(dict(claims))
        for one in items:
            self.add_link(str(one.get("title")), one.get("custom") or {}, one.get("lineItem"))

    def verified(self, token: str) -> dict[str, Any]:
        """Claims that the tool signed with a key that it shows. Raises Refusal."""
        found = requests.get(f"{self.tool}/lti/jwks", timeout=TIMEOUT_S).json()
        try:
            return dict(jwt.decode(token, KeySet.import_key_set(found), algorithms=["RS256"]).claims)
        except (JoseError, ValueError) as error:
            raise Refusal(400, f"the tool's signature: {type(error).__name__}") from None


def claim(**values: Any) -> dict[str, Any]:
    """Claims of LTI by their short names; those that are None are left out."""
    return {f"{CLAIM}{name}": value for name, value in values.items() if value is not None}
