"""What still waits in SQL, told in Redis for machines, which never see the database."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from redis import Redis

from grading.broker import lua
from grading.broker.lua_scripts import Script

BACKLOG = "grader:backlog"
FRESH_S = 30.0
"""What was told longer ago is not believed: whoever releases work tells it every few seconds."""
KEEP_S = 300

Runs = Mapping[tuple[str, str], int]
"""(stage, priority) -> runs that wait in SQL and were not sent."""


class Backlog:
    """The backlog over one Redis client. Methods raise redis errors."""

    def __init__(self, client: Redis) -> None:
        self.redis = client
        self._tell = Script(client, lua.TELL_BACKLOG)

    def tell(self, runs: Runs) -> None:
        """Say how many runs of each stage and priority wait; it replaces what was said before."""
        told = [part for (stage, priority), n in runs.items() for part in (f"{stage} {priority}", n)]
        self._tell(keys=[BACKLOG], args=[KEEP_S, *told])

    def read(self) -> dict[tuple[str, str], int]:
        """What was told last; empty when that is too long ago."""
        with self.redis.pipeline(transaction=False) as pipe:
            pipe.time()
            pipe.hgetall(BACKLOG)
            (seconds, micro), rows = pipe.execute()
        return believed(cast("dict[str, str]", rows), seconds + micro / 1e6)


def believed(rows: Mapping[str, str], moment: float) -> dict[tuple[str, str], int]:
    """The hash as it lies in Redis, read at `moment` by Redis' clock; empty when it is old."""
    if not 0 <= moment - float(rows.get("at", "-inf")) <= FRESH_S:
        return {}
    found = {tuple(name.split(" ", 1)): int(count) for name, count in rows.items() if " " in name}
    return cast("dict[tuple[str, str], int]", found)
