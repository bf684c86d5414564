"""Scripts that run inside Redis: the server loads them, machines only call them."""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Sequence
from typing import Any

from redis import Redis
from redis.exceptions import NoScriptError

from grading.broker.signing import MACHINE

log = logging.getLogger(__name__)
MISSING_S = 8.0
"""How long who may not load a script waits for the server, which loads those that are missing every 5 s."""
AGAIN_S = 0.2


class Script:
    """A script by its digest."""

    def __init__(self, client: Redis, text: str) -> None:
        self._redis = client
        self._text = text
        self._digest = digest(text)
        user = client.connection_pool.connection_kwargs.get("username")
        self._only_calls = str(user or "").startswith(MACHINE)

    def __call__(self, keys: Sequence[str] = (), args: Sequence[Any] = ()) -> Any:
        """Run it; one that Redis does not know is loaded. Raises redis errors.

        A machine may not load scripts: it waits for the server, as Redis forgets them when it starts again.
        """
        until = time.monotonic() + MISSING_S
        while True:
            try:
                return self._redis.evalsha(self._digest, len(keys), *keys, *args)
            except NoScriptError:
                if not self._load() and time.monotonic() > until:
                    raise

    def _load(self) -> bool:
        if self._only_calls:
            log.debug("redis does not know a script yet; waiting for the server to load it")
            threading.Event().wait(AGAIN_S)
            return False
        self._redis.script_load(self._text)
        return True


def digest(text: str) -> str:
    """By which Redis knows a script."""
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def load(client: Redis, texts: Sequence[str]) -> int:
    """Load those that Redis does not know; how many it were. Raises redis errors."""
    known = client.script_exists(*(digest(text) for text in texts))
    missing = [text for text, there in zip(texts, known, strict=True) if not there]
    for text in missing:
        client.script_load(text)
    return len(missing)
