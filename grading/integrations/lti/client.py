"""Talking with a platform by `grading.integrations.http_client`: its keys, tokens, lists of several pages."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from secrets import token_urlsafe
from typing import Any
from urllib.parse import urljoin

from grading.domain.messages import Message, define_message
from grading.integrations.http_client import Allowed, Answer, OutsideFailed, ask
from grading.integrations.lti.keys import ToolKey, signed
from grading.integrations.lti.messages import assertion, token_form
from grading.integrations.lti.values import Platform, PlatformFailed, PlatformSilent

NO_KEYS = define_message("lti_platform.no_keys", "The platform's public keyset URL returns no keys.")
ANSWERED = define_message("lti_platform.answered", "%(what)s: the platform answered %(status)s%(answer)s")
ANSWER_NOT_AN_OBJECT = define_message(
    "lti_platform.answer_not_an_object", "The platform's answer is not a JSON object."
)
NO_TOKEN = define_message(
    "lti_platform.no_token", "The platform issued no access token: it answered %(status)s%(answer)s"
)
NO_TOKEN_IN_ANSWER = define_message(
    "lti_platform.no_token_in_answer", "The platform's answer contains no access token."
)
NO_ANSWER = define_message("lti_platform.no_answer", "The platform does not answer: %(why)s")
ANSWER_NOT_JSON = define_message("lti_platform.answer_not_json", "The platform's answer is not JSON.")
LIST_WITHOUT_END = define_message(
    "lti_platform.list_without_end", "The platform's list repeats its pages or has too many of them."
)

TIMEOUT_S = 15.0
KEYS_TIMEOUT_S = 5.0
"""Somebody waits for their launch."""
EARLIER_S = 60.0
"""A token is not used in its last minute."""
MOST_PAGES = 200
BUSY = (429, 503)
LARGEST = 4_000_000
LINE_ITEM = "application/vnd.ims.lis.v2.lineitem+json"
LINE_ITEMS = "application/vnd.ims.lis.v2.lineitemcontainer+json"
SCORE = "application/vnd.ims.lis.v1.score+json"
RESULTS = "application/vnd.ims.lis.v2.resultcontainer+json"
ROSTER = "application/vnd.ims.lti-nrps.v2.membershipcontainer+json"


def fetch_jwks(platform: Platform, allow: Allowed) -> dict[str, Any]:
    """The keys a platform publishes. Raises PlatformFailed, Refused."""
    found = fetch_json(platform.jwks_url, allow)
    if not isinstance(found.get("keys"), list):
        raise PlatformFailed(NO_KEYS)
    return {"keys": [one for one in found["keys"][:50] if isinstance(one, dict)]}


def fetch_json(url: str, allow: Allowed) -> dict[str, Any]:
    """An object that anybody may read. Raises PlatformFailed, Refused."""
    answer = _ask("GET", url, {"Accept": "application/json"}, b"", allow, KEYS_TIMEOUT_S)
    return _object(answer)


@dataclass(frozen=True)
class Talk:
    """Requests in the tool's name, with tokens that are kept as long as they are valid."""

    key: Callable[[], ToolKey]
    allow: Allowed
    moment: Callable[[], datetime] = lambda: datetime.now(UTC)
    """For assertions: the database's clock."""
    _tokens: dict[tuple[int, tuple[str, ...]], tuple[str, float]] = field(default_factory=dict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def send(
        self, platform: Platform, scopes: Sequence[str], method: str, url: str, kind: str, body: Any = None
    ) -> Answer:
        """One request with a token; with a fresh one where the old one is refused. Raises PlatformFailed."""
        content = b"" if body is None else json.dumps(body).encode()
        headers = {"Accept": kind} if body is None else {"Content-Type": kind, "Accept": f"{kind}, */*;q=0.1"}
        answer = self._send(platform, scopes, method, url, headers, content)
        if answer.status == 401:
            with self._lock:
                self._tokens.pop((platform.id, tuple(scopes)), None)
            answer = self._send(platform, scopes, method, url, headers, content)
        return answer

    def pages(self, platform: Platform, scopes: Sequence[str], url: str, kind: str) -> Iterator[Any]:
        """The JSON of every page of a list. Raises PlatformFailed."""
        seen = set[str]()
        while url:
            if url in seen or len(seen) >= MOST_PAGES:
                raise PlatformFailed(LIST_WITHOUT_END)
            seen.add(url)
            answer = self.send(platform, scopes, "GET", url, kind)
            yield _json(answer)
            url = _next(answer.headers.get("link", ""), url)

    def _send(
        self,
        platform: Platform,
        scopes: Sequence[str],
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
    ) -> Answer:
        bearer = {"Authorization": f"Bearer {self._token(platform, tuple(scopes))}"}
        return _ask(method, url, {**headers, **bearer}, body, self.allow, TIMEOUT_S)

    def _token(self, platform: Platform, scopes: tuple[str, ...]) -> str:
        with self._lock:
            known = self._tokens.get((platform.id, scopes))
        if known is not None and known[1] > time.monotonic():
            return known[0]
        claims = assertion(platform, self.moment(), token_urlsafe(24))
        form = token_form(signed(self.key(), claims), scopes)
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        asked = time.monotonic()
        answer = _ask("POST", platform.token_url, headers, form, self.allow, TIMEOUT_S)
        if not 200 <= answer.status < 300:
            raise _failed(NO_TOKEN(status=answer.status, answer=_said(answer)), answer)
        found = _object(answer)
        token, valid = found.get("access_token"), found.get("expires_in", 0)
        if not isinstance(token, str) or not re.fullmatch(r"[!-~]{1,8000}", token):
            raise PlatformFailed(NO_TOKEN_IN_ANSWER)
        seconds = float(valid) if isinstance(valid, int | float) else 0.0
        with self._lock:
            self._tokens[platform.id, scopes] = token, asked + min(seconds, 3600.0) - EARLIER_S
        return token


def require_ok(answer: Answer, what: str) -> None:
    """Go on after a 2xx. Raises PlatformFailed."""
    if not 200 <= answer.status < 300:
        raise _failed(ANSWERED(what=what, status=answer.status, answer=_said(answer)), answer)


def object_of(answer: Answer, what: str) -> dict[str, Any]:
    """The object in an answer. Raises PlatformFailed."""
    require_ok(answer, what)
    return _object(answer)


def _failed(message: Message, answer: Answer) -> PlatformFailed:
    """The error; where the platform as a whole is busy, with how long it asks to be left alone."""
    return PlatformFailed(message, answer.status, answer.retry_after_s if answer.status in BUSY else 0.0)


def _ask(
    method: str, url: str, headers: Mapping[str, str], body: bytes, allow: Allowed, timeout_s: float
) -> Answer:
    try:
        return ask(
            method, url, headers={**headers, "User-Agent": "Grader"}, body=body, timeout_s=timeout_s,
            most_bytes=LARGEST, allow=allow,
        )  # fmt: skip
    except OutsideFailed as error:
        raise PlatformSilent(NO_ANSWER(why=error.coded)) from None


def _json(answer: Answer) -> Any:
    require_ok(answer, "asking")
    try:
        return json.loads(answer.body)
    except (ValueError, RecursionError):
        raise PlatformFailed(ANSWER_NOT_JSON, answer.status) from None


def _object(answer: Answer) -> dict[str, Any]:
    found = _json(answer)
    if not isinstance(found, dict):
        raise PlatformFailed(ANSWER_NOT_AN_OBJECT, answer.status)
    return found


def _said(answer: Answer) -> str:
    """The beginning of what it said about it, in one line."""
    text = answer.body[:300].decode("utf-8", "replace")
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return f": {text}" if text else ""


def _next(header: str, here: str) -> str:
    """The address of the next page in a header `Link`."""
    for match in re.finditer(r"<([^<>]*)>([^<]*)", header):
        # Moodle's list of columns quotes with “, which arrives as other bytes, and writes & as in HTML
        if re.search(r"rel\s*=\s*\S{0,4}?next\b", match[2]):
            return str(urljoin(here, match[1].replace("&amp;", "&")))
    return ""
