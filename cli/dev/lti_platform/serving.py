"""Running the test platform: in a thread, for tests, or until it is told to end."""

from __future__ import annotations

import threading
from types import TracebackType

from werkzeug.serving import WSGIRequestHandler, make_server

from cli.dev.lti_platform.views import create_platform
from cli.dev.lti_platform.world import World


class _Quiet(WSGIRequestHandler):
    """Logs nothing: addresses carry who somebody says they are."""

    def log(self, type: str, message: str, *args: object) -> None:
        """Nothing."""


class Running:
    """The platform in a thread; a context manager ends it."""

    def __init__(self, world: World, host: str, port: int) -> None:
        self.world = world
        self._server = make_server(host, port, create_platform(world), threaded=True, request_handler=_Quiet)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._serve, name="lti-platform", daemon=True)

    def _serve(self) -> None:
        self._server.serve_forever(poll_interval=0.05)

    def __enter__(self) -> Running:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
