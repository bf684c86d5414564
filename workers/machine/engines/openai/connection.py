"""The way to a server over HTTP: requests under a watch, which can close their sockets and counts bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any

import requests

from workers.machine.engines.held import HeldAdapter
from workers.machine.engines.http.errors import broke_off, compressed
from workers.machine.engines.http.watch import Limits, Watch

LOOK_S = 2.0
MAX_ERROR_BYTES = 10_000
MAX_LOOK_BYTES = 4_000_000


class OpenAIWire:
    """One exchange with a server and the look-ups around it. Use as a context manager.

    Raises EngineErrors, and what requests raises.
    """

    def __init__(self, watch: Watch, limits: Limits, where: str, headers: Mapping[str, str]) -> None:
        self.watch = watch
        self.where = where
        self._limits = limits
        self._headers = {"Accept-Encoding": "identity", **headers}
        self._session = requests.Session()

    def __enter__(self) -> OpenAIWire:
        self._session.trust_env = False
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, HeldAdapter(self.watch.hold))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.close()

    def post(self, url: str, payload: Mapping[str, Any]) -> requests.Response:
        """Begin an exchange; the answer's body is not read yet."""
        # the watch is the stricter one; this is the net below it
        net = max(self._limits.load, self._limits.chunk) + 5
        return self._session.post(
            url,
            json=payload,
            headers={**self._headers, "Accept": "text/event-stream"},
            stream=True,
            timeout=(max(0.01, min(self._limits.connect, self.watch.remaining)), net),
            allow_redirects=False,
        )

    def chunks(self, response: requests.Response) -> Iterator[bytes]:
        """Bytes as they arrive, counted; ends with the body or when the watch shut the connection."""
        from urllib3.exceptions import HTTPError

        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise compressed(self.where)
        try:
            while chunk := response.raw.read1(65_536):
                self.watch.wire(len(chunk))
                yield chunk
        except (HTTPError, ValueError) as exc:  # ValueError: read of a file the watch closed
            raise broke_off(self.where, type(exc).__name__) from exc
        self.watch.check()

    def body(self, response: requests.Response, most: int = MAX_ERROR_BYTES) -> str:
        """The beginning of a body."""
        body = b""
        for chunk in self.chunks(response):
            body += chunk
            if len(body) > most:
                break
        return body[:most].decode("utf-8", "replace")

    def look(self, url: str, payload: Mapping[str, Any] | None = None) -> tuple[int, Any]:
        """Status and JSON of a small answer; nothing for a body that is no JSON."""
        seconds = max(0.01, min(LOOK_S, self.watch.remaining))
        with self._session.request(
            "GET" if payload is None else "POST",
            url,
            json=payload,
            headers=self._headers,
            stream=True,
            timeout=(seconds, seconds),
            allow_redirects=False,
        ) as response:
            body = self.body(response, MAX_LOOK_BYTES)
            try:
                return response.status_code, json.loads(body)
            except ValueError:
                return response.status_code, None
