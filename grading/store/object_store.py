"""The object store: bytes by key in an S3-compatible service, verified and bounded in time and memory."""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from grading.config.files import Files
from grading.domain.errors import FileDamaged, FilesUnavailable

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Client
    from obstore.store import S3Credential

log = logging.getLogger(__name__)
CONNECT_S = 3
REQUEST_S = 15
"""Of one request, its whole answer included."""
RETRIES = 2
RETRY_FOR_S = 10
"""Since the first request; afterwards none is repeated. So nobody waits longer than for 25 s."""
PIECE_BYTES = 8 * 1024 * 1024
"""Of a request: larger objects are read and written in pieces, so that each has time enough."""
AT_ONCE = 4
"""Threads of a process in the object store: the others answer whoever needs none of its files."""
TURN_S = 2.0
"""The longest wait for a turn."""
AWAY_S = 5.0
"""So long after a failure nobody asks again."""
LISTED = 1000
"""Keys of a page of a list."""


class StoredObject(NamedTuple):
    """An object as a list tells of it."""

    key: str
    size: int
    modified: datetime


def open_objects(files: Files) -> ObjectStore | None:
    """The object store that the configuration names. Raises ConfigError without its keys."""
    if not files.used:
        return None
    keys = files.keys

    def credentials() -> S3Credential:
        return {"access_key_id": keys.key_id, "secret_access_key": keys.secret, "expires_at": None}

    def connect() -> Client:
        from obstore.store import S3Store

        return S3Store(
            files.bucket,
            prefix=files.prefix,
            # both, and keys by a function: obstore would take what it is not told from AWS_ variables
            config={
                "endpoint": files.address,
                "aws_endpoint_url_s3": files.address,
                "region": files.region,
                "disable_bulk_delete": True,  # not all stores know it
                "disable_tagging": True,
            },
            client_options={
                "allow_http": files.address.startswith("http://"),
                "connect_timeout": timedelta(seconds=CONNECT_S),
                "timeout": timedelta(seconds=REQUEST_S),
                **({"root_certificate": Path(files.ca_file).read_text()} if files.ca_file else {}),
            },
            retry_config={"max_retries": RETRIES, "retry_timeout": timedelta(seconds=RETRY_FOR_S)},
            credential_provider=credentials,
        )

    return ObjectStore(connect, files.larger_than_kb * 1024)


@dataclass
class ObjectStore:
    """Objects under a prefix; any number of threads may use it.

    Raises FilesUnavailable where a later try may succeed, FileDamaged where an object is not what it was.
    """

    connect: Callable[[], Client]
    larger_than: int = 0
    """Bytes of the largest file that stays in the database; 0: all stay."""
    clock: Callable[[], float] = time.monotonic
    _turns: threading.BoundedSemaphore = field(default_factory=lambda: threading.BoundedSemaphore(AT_ONCE))
    _away_until: float = float("-inf")

    @cached_property
    def _client(self) -> Client:
        return self.connect()

    def put(self, key: str, content: bytes) -> None:
        """Store an object; it is durable when this returns."""
        import obstore

        with self._turn():
            obstore.put(self._client, key, content, chunk_size=PIECE_BYTES, max_concurrency=2)

    def get(self, key: str, sha256: str, size: int) -> bytes:
        """The content of an object, which has this hash and size."""
        pieces = list(self._pieces(key, sha256, size))
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def verify(self, key: str, sha256: str, size: int) -> None:
        """Read an object piece by piece. Raises FileDamaged where it has not this hash and size."""
        for _ in self._pieces(key, sha256, size):
            pass

    def _pieces(self, key: str, sha256: str, size: int) -> Iterator[bytes]:
        """The content in pieces; raises FileDamaged at its end where it is another one."""
        import obstore

        digest, read = hashlib.sha256(), 0
        while read < size:
            end = min(read + PIECE_BYTES, size)
            try:
                with self._turn():
                    piece = obstore.get_range(self._client, key, start=read, end=end).to_bytes()
            except FileNotFoundError:
                log.error("the object %s is not in the object store", key)
                raise FileDamaged from None
            digest.update(piece)
            read += len(piece)
            if read != end:
                break
            yield piece
        if read != size or digest.hexdigest() != sha256:
            log.error("the object %s in the object store is not the file that was stored", key)
            raise FileDamaged

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects; those that are not there are deleted already."""
        import obstore

        for key in keys:
            with self._turn():
                try:
                    obstore.delete(self._client, key)
                except FileNotFoundError:
                    continue

    def pages(self) -> Iterator[list[StoredObject]]:
        """All objects under the prefix, in pages."""
        import obstore

        pages = iter(obstore.list(self._client, chunk_size=LISTED))
        while True:
            with self._turn():
                page = next(pages, None)
            if page is None:
                return
            yield [StoredObject(one["path"], one["size"], one["last_modified"]) for one in page]

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """A place among those who use the object store now."""
        from obstore.exceptions import BaseError

        if self.clock() < self._away_until or not self._turns.acquire(timeout=TURN_S):
            raise FilesUnavailable
        try:
            yield
        except FileNotFoundError as error:
            if "NoSuchBucket" not in str(error):
                raise
            raise self._away(error) from error
        except (BaseError, OSError) as error:
            raise self._away(error) from error
        finally:
            self._turns.release()

    def _away(self, error: Exception) -> FilesUnavailable:
        self._away_until = self.clock() + AWAY_S
        log.warning("the object store does not answer as it should: %s", first_line(error))
        return FilesUnavailable()


def first_line(error: BaseException) -> str:
    """What the object store said, on one line, without the addresses and headers that follow."""
    return next(iter(str(error).splitlines()), type(error).__name__)[:300]
