"""A requests adapter that hands over each socket as soon as it is connected."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

Hold = Callable[[socket.socket], None]


class HeldAdapter(HTTPAdapter):
    """Calls `hold` with every connected socket, before anything is sent; never retries."""

    def __init__(self, hold: Hold) -> None:
        self._hold = hold
        super().__init__(max_retries=0)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Make the pools, with connections that tell."""
        super().init_poolmanager(*args, **kwargs)
        hold = self._hold

        class Plain(HTTPConnection):
            def connect(self) -> None:
                super().connect()
                hold(self.sock)

        class Secure(HTTPSConnection):
            def connect(self) -> None:
                super().connect()
                hold(self.sock)

        class PlainPool(HTTPConnectionPool):
            ConnectionCls = Plain

        class SecurePool(HTTPSConnectionPool):
            ConnectionCls = Secure

        self.poolmanager.pool_classes_by_scheme = {"http": PlainPool, "https": SecurePool}
