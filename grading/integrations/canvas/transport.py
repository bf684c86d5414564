"""The requests of `canvasapi` by the one safe way out, and files that lie elsewhere.

canvasapi speaks with `requests`, which looks hosts up again, follows redirects and has no limit of time. So
its session has this adapter only: every request goes by `grading.integrations.http_client`, to this
Canvas alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests
from requests.adapters import BaseAdapter

from grading.integrations.canvas.values import CanvasFailed, CanvasSilent
from grading.integrations.http_client import Allowed, Answer, OutsideFailed, Refused, TooMuch, ask

TIMEOUT_S = 15.0
WAITS_S = (1.0, 3.0, 9.0)
"""Before a question is asked again that was not answered; what changes something is asked once."""
LARGEST = 8_000_000
MOST_REQUESTS = 5_000
"""Of one pass: lists that go in a circle end."""
MOST_STEPS = 5
REDIRECTS = (301, 302, 303, 307, 308)
LATER = (408, 425, 429)


def origin(url: str) -> tuple[str, str]:
    """What must be the same for a token to be sent."""
    parts = urlsplit(url)
    return parts.scheme, parts.netloc


@dataclass
class Outside(BaseAdapter):
    """Sends what `requests` prepared; `pause` waits and says whether to stop."""

    base: str
    allow: Allowed
    pause: Callable[[float], object] = time.sleep
    count: int = field(default=0, init=False)

    def send(self, request: requests.PreparedRequest, *_: Any, **__: Any) -> requests.Response:
        """The answer. Raises CanvasSilent where there is none, CanvasFailed for another address."""
        url, method = request.url or "", request.method or "GET"
        if origin(url) != origin(self.base):
            raise CanvasFailed("Canvas named another address than its own for a list; the token stays here.")
        body = request.body or b""
        headers = {name: str(value) for name, value in request.headers.items()}
        headers |= {"Accept": "application/json", "Accept-Encoding": "identity"}
        for wait in (*WAITS_S, None) if method == "GET" else (None,):
            try:
                answer = self._once(
                    method, url, headers, body.encode() if isinstance(body, str) else bytes(body)
                )
            except CanvasSilent:
                if wait is None or self.pause(wait):
                    raise
                continue
            return _response(request, answer)
        raise AssertionError

    def _once(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        self.count += 1
        if self.count > MOST_REQUESTS:
            raise CanvasFailed("Canvas' lists do not end.")
        try:
            answer = ask(
                method, url, headers=headers, body=body, timeout_s=TIMEOUT_S, most_bytes=LARGEST,
                allow=self.allow,
            )  # fmt: skip
        except OutsideFailed as error:
            raise CanvasSilent(f"Canvas does not answer: {error.message}") from None
        if answer.status in REDIRECTS:
            raise CanvasFailed(
                f"Canvas answers with a redirect ({answer.status}); is its address in config.toml right?"
            )
        if throttled(answer):
            raise CanvasSilent("Canvas asks for fewer requests (rate limit exceeded).")
        if answer.status >= 500 or answer.status in LATER:
            raise CanvasSilent(f"Canvas answered {answer.status}.")
        return answer

    def close(self) -> None:
        """Nothing is kept open."""


def throttled(answer: Answer) -> bool:
    """Whether Canvas refused because of too many requests: a 403 like others, with these words."""
    return answer.status == 429 or (answer.status == 403 and b"Rate Limit Exceeded" in answer.body[:1000])


def _response(request: requests.PreparedRequest, answer: Answer) -> requests.Response:
    made = requests.Response()
    made.status_code, made._content = answer.status, answer.body
    made.headers = requests.structures.CaseInsensitiveDict(answer.headers)
    made.url, made.request, made.encoding = request.url or "", request, "utf-8"
    return made


def session(outside: Outside) -> requests.Session:
    """A session that has no other way out and takes nothing from the environment."""
    made = requests.Session()
    made.adapters.clear()
    made.trust_env, made.max_redirects = False, 0
    for scheme in ("https://", "http://"):
        made.mount(scheme, outside)
    return made


class FileGone(CanvasFailed):
    """A file of Canvas cannot be got, however often it is tried."""

    code = "canvas_file_gone"
    status = 422


def download(url: str, base: str, token: str, most_bytes: int, timeout_s: float, allow: Allowed) -> bytes:
    """What is behind a file's address, at most five redirects further, each checked like the first.

    The token goes to Canvas' own address only. Raises FileGone, CanvasSilent.
    """
    until = time.monotonic() + timeout_s
    for _ in range(MOST_STEPS + 1):
        headers = {"User-Agent": "Grader", "Accept-Encoding": "identity"}
        if origin(url) == origin(base):
            headers["Authorization"] = f"Bearer {token}"
        left = until - time.monotonic()
        if left <= 0:
            raise CanvasSilent("a file did not come in time")
        answer = _file(url, headers, left, most_bytes, allow)
        if answer.status not in REDIRECTS:
            return _content(answer)
        url = urljoin(url, answer.headers.get("location", ""))
    raise FileGone("a file's address redirects too often")


def _file(url: str, headers: Mapping[str, str], left: float, most_bytes: int, allow: Allowed) -> Answer:
    try:
        return ask("GET", url, headers=headers, timeout_s=left, most_bytes=most_bytes, allow=allow)
    except Refused as error:
        raise FileGone(f"a file's address is not asked. {error.message}") from None
    except TooMuch:
        raise FileGone(f"a file is larger than the {most_bytes} bytes that may still be taken") from None
    except OutsideFailed as error:
        raise CanvasSilent(f"a file could not be got: {error.message}") from None


def _content(answer: Answer) -> bytes:
    if answer.status >= 500 or answer.status in LATER or throttled(answer):
        raise CanvasSilent(f"a file could not be got: its server answered {answer.status}")
    if answer.status != 200:
        raise FileGone(f"a file cannot be got: its server answered {answer.status}")
    return answer.body
