"""One deployment of a machine at a time, and what it uses: changed as a whole, kept or put back."""

from __future__ import annotations

import getpass
import json
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from cli.deploy.file_transfer import DEPLOY_SCRIPT
from cli.deploy.services import POLL_S, SPARE_S, Heartbeats, MachineService
from cli.deploy.session import Timeout
from cli.deploy.ssh import MachineError, Remote

RELEASES_SCRIPT = Path(__file__).parent / "remote" / "releases.py"


def whoami() -> str:
    """Who deploys, for those who want to at the same time."""
    return f"{getpass.getuser()}@{socket.gethostname()} (process {os.getpid()})"


class Lock:
    """Keeps others from deploying to a machine until it is closed or the connection ends."""

    def __init__(self, remote: Remote, version: str) -> None:
        self._remote = remote
        self._session = remote.session(DEPLOY_SCRIPT, "hold", whoami(), version)
        try:
            if self._session.line(SPARE_S) is None:
                remote.answer(self._session, SPARE_S)
        except Timeout:
            self.close()
            raise MachineError(f"{remote.machine}: no answer within {SPARE_S:.0f} s; try again.") from None
        except MachineError:
            self.close()
            raise

    def check(self) -> None:
        """MachineError when it is gone."""
        if not self._session.alive:
            raise MachineError(
                f"{self._remote.machine}: the connection that held the lock ended. Deploy again."
            )

    def close(self) -> None:
        """Let others."""
        self._session.close()


@dataclass(frozen=True)
class Begun:
    """What a change has done so far."""

    changed: list[str]
    started: list[str]
    ran: list[str]
    """What ran before; what of it is not among the started runs on."""
    version: str


class Change:
    """A change of what a machine uses. Leaving the context without `keep` puts back what was there."""

    def __init__(
        self,
        remote: Remote,
        services: list[MachineService],
        wanted: dict[str, Any] | None,
        say: Callable[[str], None],
    ) -> None:
        """Use what is wanted, or without it what was used before."""
        self._remote, self._services, self._tell = remote, services, say
        self._what = "the previous release" if wanted is None else "the new release"
        self._kept = False
        self._stop_s = sum(one.grace_s + 20 for one in services) + SPARE_S
        verb = "back" if wanted is None else "activate"
        self._session = remote.session(RELEASES_SCRIPT, verb, own_s=2 * self._stop_s)
        if wanted is not None:
            self._say(json.dumps(wanted))

    def __enter__(self) -> Change:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Put back what was not kept."""
        self._session.close()

    def begun(self) -> Begun:
        """What it has done; MachineError when it failed and was put back."""
        while "stopping" in (answer := self._answer()):
            name = answer["stopping"]
            one = next((one for one in self._services if one.name == name), None)
            has = f"has {one.grace_s:g} s to finish or return its runs" if one else "is no longer needed"
            self._tell(f"stopping {name}; it {has}")
        if "started" not in answer:
            raise self._failed("could not be started", answer)
        return Begun(answer["changed"], answer["started"], answer["ran"], answer["version"])

    def keep(self) -> None:
        """It is well: keep it."""
        if not self._kept:
            self._say("keep")
            answer = self._answer()
            if not answer["kept"]:
                raise self._failed("stopped right after its start", answer)
            self._kept = True

    def until(self, reached: Callable[[], bool], wait_s: float, what: str) -> float:
        """Wait until it is well; the seconds it took. Else it is put back, and MachineError says why."""
        begun = time.monotonic()
        while not reached():
            try:
                line = self._session.line(POLL_S)
            except Timeout:
                if time.monotonic() - begun > wait_s:
                    self._say("back")
                    raise self._failed(f"{what} within {wait_s:.0f} s", self._answer()) from None
                continue
            answer = self._read(line)
            if not answer["kept"]:
                raise self._failed("stopped right after its start", answer)
            self._kept = True  # nothing was started
            return self._runs_on(reached, wait_s, what)
        return time.monotonic() - begun

    def _runs_on(self, reached: Callable[[], bool], wait_s: float, what: str) -> float:
        begun = time.monotonic()
        while not reached():
            if time.monotonic() - begun > wait_s:
                raise MachineError(
                    f"{self._remote.machine}: nothing changed and its worker runs, but it {what} within "
                    f"{wait_s:.0f} s. See `grader cluster logs`, or run `grader cluster restart`."
                )
            time.sleep(POLL_S)
        return time.monotonic() - begun

    def _failed(self, what: str, answer: dict[str, Any]) -> MachineError:
        """What went wrong, what runs now, and what to do."""
        reason = f" ({answer['why']})" if what.startswith("could") else ""
        log = f" Its log ends:\n{answer['log']}" if answer["log"] else ""
        if answer.get("same"):
            name = self._remote.machine
            return MachineError(
                f"{name}: nothing changed, but the current release {what}{reason}. "
                f"See `grader cluster logs {name}`, or use --rollback.{log}"
            )
        message = f"{self._remote.machine}: {self._what} {what}{reason}"
        if answer["version"]:
            runs = "runs again" if answer["runs"] else "is restored; it was not running"
            message += f", so the previous release, {answer['version']}, {runs}"
        else:
            message += "; there is no previous release"
        more = ", or wait longer with --wait" if "within" in what else ""
        return MachineError(f"{message}. Fix it and deploy again{more}.{log}")

    def _say(self, word: str) -> None:
        try:
            self._session.send(f"{word}\n".encode())
        except BrokenPipeError:
            pass  # its answer says why

    def _answer(self) -> dict[str, Any]:
        try:
            return self._read(self._session.line(self._stop_s * 2))
        except Timeout:
            raise MachineError(f"{self._remote.machine}: changing its service takes too long.") from None

    def _read(self, line: bytes | None) -> dict[str, Any]:
        if line is None:
            answer = self._remote.answer(self._session, SPARE_S)
        else:
            answer = self._remote.read(line)
        assert isinstance(answer, dict)
        return answer


def see_through(
    change: Change,
    begun: Begun,
    services: list[MachineService],
    heartbeats: Heartbeats,
    before: set[str],
    wait_s: float,
) -> str:
    """Wait until all services of a change are well, and keep it; how they are.

    `before` are the processes that sent heartbeats before it.
    """
    said = []
    for one in services:
        started = one.name in begun.started
        how = "restarted" if started and one.name in begun.ran else "started" if started else "runs"
        if one.part == "prefill":
            change.until(one.listens, wait_s, f"does not listen at {one.address}")
            said.append(f"prefill {how}, listening")
            continue
        known = before if started else set()
        seconds = change.until(partial(_beats, heartbeats, one, known), wait_s, "sent no heartbeat")
        untouched = "nothing it uses changed" if begun.changed else "nothing changed"
        beats = f"{how}, heartbeat after {seconds:.1f} s"
        said.append(beats if started else f"running; {untouched}")
    change.keep()
    return "; ".join(said)


def _beats(heartbeats: Heartbeats, one: MachineService, known: set[str]) -> bool:
    return bool(heartbeats.of(one.machine.name) - known)
