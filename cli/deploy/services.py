"""Services of a machine: what they are, and how they are run over SSH."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Any, Literal

from redis.exceptions import RedisError

from cli.deploy.file_transfer import DEPLOY_SCRIPT
from cli.deploy.session import Session
from cli.deploy.ssh import MachineError, Remote
from cli.deploy.units import Kind, Service
from grading.broker.away import refuses_password
from grading.broker.dispatch import open_leases
from grading.broker.heartbeats import Heartbeat
from grading.config.settings import Config, Machine
from grading.domain.model_digests import Claim, claims

POLL_S = 0.2


class Heartbeats:
    """Reads heartbeats from the Redis of a configuration; a context manager gives the connection back."""

    def __init__(self, config: Config) -> None:
        self._leases = open_leases(config)

    def __enter__(self) -> Heartbeats:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leases.redis.close()

    def ages(self) -> dict[str, dict[str, float]]:
        """For each machine that sends heartbeats, its processes and the seconds since their last
        heartbeat.
        """
        found: dict[str, dict[str, float]] = {}
        for heartbeat in self._alive():
            found.setdefault(heartbeat.machine, {})[heartbeat.process] = heartbeat.age_s
        return found

    def _alive(self) -> list[Heartbeat]:
        try:
            self._leases.seek()
            return [one for one in self._leases.heartbeats() if one.alive]
        except RedisError as error:
            says = (
                "refuses the password in GRADER_REDIS_URL" if refuses_password(error) else "does not answer"
            )
            raise MachineError(f"Redis {says} ({error}), so heartbeats cannot be read.") from None

    def claims(self) -> list[Claim]:
        """What each machine that sends heartbeats says of the weights of its models."""
        return [one for heartbeat in self._alive() for one in claims(heartbeat.machine, heartbeat.stages)]

    def of(self, machine: str) -> set[str]:
        """The processes of a machine that send heartbeats."""
        return set(self.ages().get(machine, {}))

    def until_new(self, machine: str, before: set[str], timeout_s: float) -> float:
        """Wait for a heartbeat of a process that was not there before; the seconds it took."""
        begun = time.monotonic()
        while not self.of(machine) - before:
            if time.monotonic() - begun > timeout_s:
                raise MachineError(f"{machine}: started, but no heartbeat within {timeout_s:.0f} s.")
            time.sleep(POLL_S)
        return time.monotonic() - begun


PREFILL_GRACE_S = 30.0
"""What reads prompts for others may take to end; those that it reads for go on by themselves."""
SERVICE_SCRIPT = Path(__file__).parent / "remote" / "service.py"
SPARE_S = 60.0


@dataclass(frozen=True)
class State:
    """How the service is. `version` names the program there, `kind` what keeps it running."""

    kind: Kind
    installed: bool
    running: bool
    changed: bool
    pid: int
    detail: str
    version: str

    @property
    def text(self) -> str:
        """In a word or two."""
        if not self.installed:
            return "not deployed"
        return f"running ({self.kind})" if self.running else f"stopped ({self.kind})"


@dataclass(frozen=True)
class MachineService:
    """A service of a machine: its worker, or what reads prompts for others."""

    machine: Machine
    remote: Remote
    part: Literal["worker", "prefill"] = "worker"

    @property
    def name(self) -> str:
        """As the service manager knows it, after `grader-` or `grader.`."""
        return f"{self.part}-{self.machine.name}"

    @property
    def label(self) -> str:
        """As people are told of it."""
        return self.machine.name if self.part == "worker" else f"{self.machine.name}, {self.part}"

    @property
    def grace_s(self) -> float:
        """Seconds that it may take to end."""
        return self.machine.grace_s if self.part == "worker" else PREFILL_GRACE_S

    def described(self, facts: dict[str, Any]) -> Service:
        """What is to be kept running, from the facts of the machine."""
        folder = PurePosixPath(facts["folder"])
        command = (
            str(folder / "environment/bin/python"),
            "-m",
            "cli",
            "--config",
            str(folder / "config.toml"),
        )
        environment = {"PYTHONUNBUFFERED": "1", "HF_HUB_OFFLINE": "1"}
        models = self.remote.ssh.models
        if models:
            home = facts["home"]
            environment["HF_HUB_CACHE"] = models.replace("~", home, 1) if models.startswith("~") else models
        return Service(
            name=self.name,
            command=(*command, self.part, self.machine.name),
            folder=folder / "current",
            env_file=folder / "grader.env",
            grace_s=self.grace_s,
            log=folder / "var" / f"{self.name}.log",
            environment=environment,
            system=facts["uid"] == 0,
            writes=(folder / "var",),
        )

    def do(self, action: str, content: str = "") -> State:
        """Install, start, stop, restart or look (`state`); how it is afterwards. Raises MachineError."""
        answer = self._call(action, content)
        return State(**{key: answer[key] for key in State.__dataclass_fields__})

    def _call(self, action: str, content: str = "") -> dict[str, Any]:
        stop_s = self.grace_s + 20
        answer = self.remote.call(
            SERVICE_SCRIPT,
            *(action, self.remote.ssh.service, self.name, str(stop_s)),
            stdin=content.encode(),
            timeout_s=stop_s + SPARE_S if action in ("stop", "restart") else SPARE_S,
            own_s=stop_s + SPARE_S if action == "restart" else 0,  # what was stopped must start again
        )
        assert isinstance(answer, dict)
        return answer

    def logs(self, count: int, *, follow: bool) -> Session:
        """Shows the last lines of its log, and those that come, until the session is closed."""
        words = ("logs", self.remote.ssh.service, self.name, str(count), "follow" if follow else "")
        return self.remote.session(SERVICE_SCRIPT, *words)

    def start(self, heartbeats: Heartbeats, wait_s: float, *, again: bool = False) -> tuple[State, float]:
        """Start it, or start it again, and wait for a heartbeat; the state and the seconds until the
        heartbeat.

        MachineError with the last lines of its log when no heartbeat comes.
        """
        before = heartbeats.of(self.machine.name)
        state = self.do("restart" if again else "start")
        if not state.changed and not again and before:
            return state, 0.0
        try:
            return state, heartbeats.until_new(self.machine.name, before if state.changed else set(), wait_s)
        except MachineError as error:
            raise self._with_log(error.message) from None

    @property
    def address(self) -> str:
        """Where it takes connections, if it reads prompts."""
        assert self.machine.prefill is not None
        return self.machine.prefill.listen

    def listens(self, wait_s: float = 0) -> bool:
        """Whether it takes connections, within so many seconds."""
        words = ("listens", *self.address.rsplit(":", 1), str(wait_s))
        return bool(self.remote.call(DEPLOY_SCRIPT, *words, timeout_s=wait_s + SPARE_S))

    def listen(self, wait_s: float, *, again: bool = False) -> State:
        """Start what reads prompts for others, or start it again, and wait until it takes connections.

        MachineError with the last lines of its log when it does not.
        """
        state = self.do("restart" if again else "start")
        if not self.listens(wait_s) or not self.do("state").running:
            raise self._with_log(
                f"{self.machine.name}: {self.name} started but does not listen at {self.address} within "
                f"{wait_s:.0f} s. Large models take longer to load: use --wait."
            )
        return state

    def _with_log(self, message: str) -> MachineError:
        log = str(self._call("log")["log"]).strip()
        return MachineError(f"{message} Its log ends:\n{log}" if log else message)


def services_of(machine: Machine, remote: Remote) -> list[MachineService]:
    """What a machine runs: its worker, and what reads prompts for others where it has [machines.prefill]."""
    parts: list[Literal["worker", "prefill"]] = ["worker", "prefill"] if machine.prefill else ["worker"]
    return [MachineService(machine, remote, part) for part in parts]
