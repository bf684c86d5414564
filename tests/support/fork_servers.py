"""Fork servers that are ready before anything is asked of them, so that no interpreter is started twice."""

from __future__ import annotations

from functools import partial

from grading.execution.values import Request
from tests.support.system import until
from workers.sandbox.backends.bubblewrap import Bubblewrap
from workers.sandbox.request_runner import Executor, Kind, prepared

_START_S = 60.0


def warm(executor: Executor, request: Request) -> None:
    """Wait until those are ready from which a request's work and its tests run; elsewhere there are none."""
    if not isinstance(executor.backend, Bubblewrap):
        return
    kinds: tuple[Kind, ...] = ("work", "tests") if request.tests else ("work",)
    for kind in kinds:
        wanted = prepared(executor.runtime(request.work.language), request, kind)
        if wanted is not None:
            find = partial(executor.backend.fork_servers.find, wanted)
            until(find, _START_S, f"a fork server, {' '.join(wanted.argv)}")
