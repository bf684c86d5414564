"""Object stores for tests: one in memory, and a small S3 server on loopback that can misbehave."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from grading.config.files import Files
from grading.store.object_store import ObjectStore, open_objects

LARGE = 64 * 1024
KEYS = {"GRADER_FILES_KEY_ID": "key", "GRADER_FILES_SECRET": "secret"}


def in_memory(larger_than: int = LARGE) -> ObjectStore:
    """An object store of this process."""
    from obstore.store import MemoryStore

    client = MemoryStore()
    return ObjectStore(lambda: client, larger_than)


@dataclass
class FaultyS3:
    """A server that stores objects, and what it does to the next requests."""

    url: str = ""
    objects: dict[str, bytes] = field(default_factory=dict)
    fault: str = ""
    """A status, or `truncated`, `wrong`, `silent` or `NoSuchBucket`; empty: it behaves."""
    requests: list[str] = field(default_factory=list)
    go_on: threading.Event = field(default_factory=threading.Event)
    """Ends the silence."""

    def open(self, **other: object) -> ObjectStore:
        """A client of it."""
        files = Files.model_validate({"bucket": "school", "endpoint": self.url, **other})
        files.take_keys(KEYS)
        objects = open_objects(files)
        assert objects is not None
        return objects


@contextmanager
def faulty_s3(tls: ssl.SSLContext | None = None) -> Iterator[FaultyS3]:
    """Run the server, with HTTPS if `tls` is given."""
    state = FaultyS3()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            state.requests.append(f"{self.command} {self.path}")

        def _answer(self, status: int, content: bytes = b"", **headers: str) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2] if state.fault == "truncated" else content)
            if state.fault == "truncated":
                self.close_connection = True

        def _misbehaves(self) -> bool:
            if state.fault == "silent":
                state.go_on.wait(60)
                self.close_connection = True
                return True
            if state.fault == "NoSuchBucket":
                self._answer(404, b"<Error><Code>NoSuchBucket</Code></Error>")
                return True
            if state.fault.isdecimal():
                self._answer(int(state.fault), b"<Error><Code>AccessDenied</Code></Error>")
                return True
            return False

        @property
        def _key(self) -> str:
            return urlsplit(self.path).path

        def do_PUT(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if not self._misbehaves():
                state.objects[self._key] = content
                self._answer(200, ETag='"etag"')

        def do_GET(self) -> None:
            if self._misbehaves():
                return
            content = state.objects.get(self._key)
            if content is None:
                return self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            if state.fault == "wrong":
                content = b"x" * len(content)
            first, last = self.headers["Range"].removeprefix("bytes=").split("-")
            part = content[int(first) : int(last) + 1]
            place = f"bytes {first}-{int(first) + len(part) - 1}/{len(content)}"
            about = {
                "Content_Range": place,
                "ETag": '"etag"',
                "Last_Modified": "Mon, 01 Jan 2024 00:00:00 GMT",
            }
            return self._answer(206, part, **about)

        def do_DELETE(self) -> None:
            if not self._misbehaves():
                state.objects.pop(self._key, None)
                self._answer(204)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.url = f"http://127.0.0.1:{server.server_port}"
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        state.url = f"https://localhost:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield state
    finally:
        state.go_on.set()
        server.shutdown()
        thread.join()
        server.server_close()
