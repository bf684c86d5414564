"""The machines' beats, as the commands of the cluster look at them."""

from __future__ import annotations

import time
from types import TracebackType

from redis.exceptions import RedisError

from cli.deploy.ssh import MachineError
from grading.broker.dispatch import open_leases
from grading.broker.heartbeats import Beat
from grading.config.settings import Config
from grading.domain.model_digests import Claim, claims

POLL_S = 0.2


class Beats:
    """Reads beats from the Redis of a configuration; a context manager gives the connection back."""

    def __init__(self, config: Config) -> None:
        self._leases = open_leases(config)

    def __enter__(self) -> Beats:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leases.redis.close()

    def ages(self) -> dict[str, dict[str, float]]:
        """For each machine that beats, its processes and the seconds since their last beat."""
        found: dict[str, dict[str, float]] = {}
        for beat in self._alive():
            found.setdefault(beat.machine, {})[beat.process] = beat.age_s
        return found

    def _alive(self) -> list[Beat]:
        try:
            self._leases.seek()
            return [beat for beat in self._leases.beats() if beat.alive]
        except RedisError as error:
            raise MachineError(f"Redis does not answer ({error}), so no beat can be seen.") from None

    def claims(self) -> list[Claim]:
        """What each machine that beats says of the weights of its models."""
        return [one for beat in self._alive() for one in claims(beat.machine, beat.stages)]

    def of(self, machine: str) -> set[str]:
        """The processes of a machine that beat."""
        return set(self.ages().get(machine, {}))

    def until_new(self, machine: str, before: set[str], timeout_s: float) -> float:
        """Wait for a beat of a process that was not there before; the seconds it took."""
        begun = time.monotonic()
        while not self.of(machine) - before:
            if time.monotonic() - begun > timeout_s:
                raise MachineError(f"{machine}: started, but no beat came within {timeout_s:.0f} s.")
            time.sleep(POLL_S)
        return time.monotonic() - begun
