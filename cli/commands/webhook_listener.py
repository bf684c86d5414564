"""A small receiver of events for one's own computer: verifies, prints, and answers as told."""

from __future__ import annotations

import binascii
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from standardwebhooks import Webhook, WebhookVerificationError

LARGEST = 1_000_000
"""Bytes of a message that are read."""


class Listener:
    """Listens on loopback from `__enter__` to `__exit__`."""

    def __init__(self, port: int, secret: str, answer: int, say: Callable[[str], object]) -> None:
        self._secret, self._answer, self._say = secret, answer, say
        self._came = threading.Semaphore(0)
        self._server = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/events"

    def __enter__(self) -> Listener:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def wait(self, count: int | None) -> None:
        """Until so many messages came; without a number for ever."""
        while count is None or count > 0:
            self._came.acquire()
            count = None if count is None else count - 1

    def heard(self, headers: dict[str, str], body: bytes) -> str:
        """What is printed of a message."""
        try:
            Webhook(self._secret).verify(body, headers, json_parse=False)
            word = "verified"
        except (WebhookVerificationError, ValueError, binascii.Error, OverflowError, TypeError) as error:
            word = f"NOT verified ({type(error).__name__})"
        try:
            text = json.dumps(json.loads(body), indent=2, ensure_ascii=True)
        except ValueError:
            text = repr(body[:2000])
        return f"{headers.get('webhook-id', '–')!r}: {word}, answered {self._answer}\n{text}\n"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        listener = self

        class Handler(BaseHTTPRequestHandler):
            timeout = 30

            def do_POST(self) -> None:  # the name is that of the library
                length = self.headers.get("Content-Length") or ""
                body = self.rfile.read(min(int(length), LARGEST)) if length.isdecimal() else b""
                headers = {name.lower(): value for name, value in self.headers.items()}
                listener._say(listener.heard(headers, body))
                self.send_response(listener._answer)
                self.send_header("Content-Length", "0")
                self.end_headers()
                listener._came.release()

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        return Handler
