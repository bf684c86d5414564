"""People with browsers: each opens the form, submits a file and then keeps the page of the submission open.

They speak HTTP over sockets of asyncio, as thousands of browsers of a library would take more processor
time than the server. A request without an answer, or with a 5xx, is repeated as the page's script does it.
"""

from __future__ import annotations

import asyncio
import html
import json
import random
import re
import ssl
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

PAUSE_S = 3.0
"""Before a request is repeated, as in the script of the form."""
ANSWER_S = 60.0
FIELD = re.compile(r'name="(csrf_token|key)" value="([^"]*)"|value="([^"]*)" name="(csrf_token|key)"')
BOUNDARY = "----deadline"


@dataclass(frozen=True)
class Answer:
    """What came back; status 0 where nothing whole did."""

    status: int
    heads: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def failed(self) -> bool:
        """Whether it is to be asked again."""
        return self.status == 0 or self.status >= 500


@dataclass
class Notes:
    """What all people saw."""

    accepted: dict[int, str] = field(default_factory=dict)
    """person -> submission"""
    accept_s: list[float] = field(default_factory=list)
    """Of each person, from the first sending of the form to the answer that it was accepted."""
    answer_s: list[float] = field(default_factory=list)
    """Of the sending that was accepted alone."""
    status_s: list[float] = field(default_factory=list)
    failed: Counter[str] = field(default_factory=Counter)
    failed_at: list[float] = field(default_factory=list)
    polls: int = 0
    refused: list[str] = field(default_factory=list)


class Browser:
    """One connection that is kept, to one of several addresses, and the cookie."""

    def __init__(self, urls: Sequence[str], cookie: str, trust: ssl.SSLContext | None, notes: Notes) -> None:
        self._urls, self._cookie, self._trust, self._notes = list(urls), cookie, trust, notes
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        random.shuffle(self._urls)

    async def ask(self, what: str, method: str, path: str, heads: str = "", body: bytes = b"") -> Answer:
        """The answer; one that failed is counted, and the next request goes to the next address."""
        try:
            answer = await asyncio.wait_for(self._ask(method, path, heads, body), ANSWER_S)
        except (OSError, asyncio.IncompleteReadError, TimeoutError, ValueError):
            answer = Answer(0)
        if answer.failed:
            self.close()
            self._urls.append(self._urls.pop(0))
            self._notes.failed[f"{what} {answer.status}"] += 1
            self._notes.failed_at.append(time.monotonic())
        return answer

    async def _ask(self, method: str, path: str, heads: str, body: bytes) -> Answer:
        parts = urlsplit(self._urls[0])
        for again in (True, False):
            fresh = self._streams is None
            if self._streams is None:
                self._streams = await asyncio.open_connection(parts.hostname, parts.port, ssl=self._trust)
            reader, writer = self._streams
            try:
                writer.write(
                    f"{method} {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nCookie: {self._cookie}\r\n{heads}"
                    f"Content-Length: {len(body)}\r\n\r\n".encode()
                    + body
                )
                await writer.drain()
                return await self._read(reader)
            except (OSError, asyncio.IncompleteReadError):
                self.close()
                # a kept connection that was closed meanwhile: browsers ask again on a new one
                if fresh or not again or method != "GET":
                    raise
        raise OSError

    async def _read(self, reader: asyncio.StreamReader) -> Answer:
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").splitlines()
        heads = {}
        for line in lines:
            name, _, value = line.partition(":")
            heads[name.lower()] = value.strip()
        status = int(first.split()[1])
        body = b"" if status in (204, 304) else await _body(reader, heads)
        if "set-cookie" in heads and "grader=" in heads["set-cookie"]:
            self._cookie = heads["set-cookie"].partition(";")[0]
        if heads.get("connection", "").lower() == "close":
            self.close()
        return Answer(status, heads, body)

    def close(self) -> None:
        """Give the connection up."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def _body(reader: asyncio.StreamReader, heads: dict[str, str]) -> bytes:
    if "content-length" in heads:
        return await reader.readexactly(int(heads["content-length"]))
    if "chunked" not in heads.get("transfer-encoding", ""):
        return await reader.read()
    found = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        found += (await reader.readexactly(size + 2))[:-2]
    await reader.readexactly(2)
    return found


@dataclass(frozen=True)
class Evening:
    """What everybody does."""

    urls: Sequence[str]
    assignment: int
    file: tuple[str, bytes]
    minutes: float
    watch_s: float
    trust: ssl.SSLContext | None = None

    @property
    def seconds(self) -> float:
        """Until the deadline."""
        return 60 * self.minutes


async def person(number: int, cookie: str, evening: Evening, begun: float, notes: Notes) -> None:
    """One person: submits at a moment that is twice as likely at the deadline as on average, then watches."""
    browser = Browser(evening.urls, cookie, evening.trust, notes)
    try:
        await asyncio.sleep(begun + evening.seconds * random.random() ** 0.5 - time.monotonic())
        submission = await _submit(browser, number, evening, notes)
        if submission:
            await _watch(browser, submission, begun + evening.seconds + evening.watch_s, notes)
    finally:
        browser.close()


async def _submit(browser: Browser, number: int, evening: Evening, notes: Notes) -> str:
    path = f"/assignments/{evening.assignment}/submit"
    while (form := await browser.ask("form", "GET", path)).failed:
        await asyncio.sleep(PAUSE_S)
    values = {a or d: html.unescape(b or c) for a, b, c, d in FIELD.findall(form.body.decode())}
    if {"csrf_token", "key"} - set(values):
        notes.refused.append(f"form {form.status}")
        return ""
    body = _multipart({**values, "then": "at_once"}, *evening.file)
    heads = f"Content-Type: multipart/form-data; boundary={BOUNDARY}\r\n"
    if evening.trust is not None:  # forms are compared with where they come from
        heads += f"Referer: {evening.urls[0]}{path}\r\n"
    first = time.monotonic()
    while True:
        begun = time.monotonic()
        answer = await browser.ask("submit", "POST", path, heads, body)
        if not answer.failed:
            break
        await asyncio.sleep(PAUSE_S)
    if answer.status != 303 or "/submissions/" not in answer.heads.get("location", ""):
        notes.refused.append(f"submit {answer.status} {answer.body[:300].decode(errors='replace')}")
        return ""
    notes.accept_s.append(time.monotonic() - first)
    notes.answer_s.append(time.monotonic() - begun)
    notes.accepted[number] = submission = answer.heads["location"].rpartition("/")[2]
    return submission


async def _watch(browser: Browser, submission: str, until: float, notes: Notes) -> None:
    """What app/static/submissions/status.js does on an open page; nobody looks because the time is over."""
    await browser.ask("page", "GET", f"/submissions/{submission}")
    etag, pause = "", 1.0
    while (begun := time.monotonic() + pause * (0.85 + 0.3 * random.random())) < until:
        await asyncio.sleep(begun - time.monotonic())
        begun = time.monotonic()
        heads = f"If-None-Match: {etag}\r\n" if etag else ""
        answer = await browser.ask("status", "GET", f"/submissions/{submission}/status.json", heads)
        notes.polls += 1
        if answer.failed:
            pause = PAUSE_S
            continue
        notes.status_s.append(time.monotonic() - begun)
        etag = answer.heads.get("etag", etag)
        if answer.status == 200:
            pause = float(json.loads(answer.body)["next_s"])
            if not pause:
                return


def _multipart(values: dict[str, str], name: str, content: bytes) -> bytes:
    parts = [
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'
        for key, value in values.items()
    ]
    head = (
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="files"; filename="{name}"\r\n'
        "Content-Type: application/octet-stream\r\n\r\n"
    )
    return "".join(parts).encode() + head.encode() + content + f"\r\n--{BOUNDARY}--\r\n".encode()


async def everybody(cookies: Sequence[str], evening: Evening, begun: float, notes: Notes) -> None:
    """All people; ends when the last one has looked long enough."""
    await asyncio.gather(
        *(person(number, cookie, evening, begun, notes) for number, cookie in enumerate(cookies))
    )
