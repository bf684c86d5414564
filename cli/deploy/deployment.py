"""Deployment of one machine, step by step."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import time
from types import TracebackType
from typing import Any

from cli.deploy.file_transfer import (
    DEPLOY_SCRIPT,
    SPARE,
    File,
    Progress,
    Room,
    copy,
    full,
    needed,
    program,
    size,
)
from cli.deploy.machine_config import authority, config_for, secrets_for, used_by
from cli.deploy.models import Models, wanted
from cli.deploy.packages import lock_for, wheels_for
from cli.deploy.releases import Begun, Change, Lock, see_through
from cli.deploy.services import Heartbeats, MachineService, services_of
from cli.deploy.ssh import MachineError, Remote
from cli.deploy.units import Kind, env_line
from cli.settings import Settings
from grading.config.settings import Machine
from grading.domain.model_digests import Claim, Difference, differing

INSTALL_S = 3600.0
UNPACKED = 4
"""What wheels take beside themselves when they are installed, by their size."""
CLOCK_S = 60.0
"""How far a machine's clock may be off."""
Step = tuple[str, str, Callable[[], str]]
"""Name, what it does, and the step itself."""


@dataclass(frozen=True)
class Options:
    """What a deployment was asked to do."""

    environment: str | None = None
    offline: bool = False
    model_folders: tuple[str, ...] = ()
    wheels: Path = Path("var/wheels")
    quick: bool = False
    wait_s: float = 60.0


@dataclass
class Deployment:
    """Brings one machine to this version and this configuration. Steps raise MachineError.

    Leaving the context lets others deploy to it, and puts back what was not seen to run.
    """

    settings: Settings
    machine: Machine
    remote: Remote
    options: Options
    environ: Mapping[str, str]
    say: Callable[[str], None]
    progress: Progress
    facts: dict[str, Any] = field(default_factory=dict)
    changed: list[str] = field(default_factory=list)
    version: str = ""
    environment: str = ""
    _files: list[File] = field(default_factory=list)
    _lock: Lock | None = None
    _change: Change | None = None
    _begun: Begun | None = None
    _kinds: dict[str, Kind] = field(default_factory=dict)
    _before: set[str] = field(default_factory=set)
    _variables: str = ""
    _models_found: Models | None = None

    def __enter__(self) -> Deployment:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for held in (self._change, self._lock):
            if held is not None:
                held.close()

    def steps(self) -> list[Step]:
        """All steps in order."""
        options, models = self.options, wanted(self.machine)
        services = " and ".join(one.name for one in self._services)
        folder = self.remote.ssh.folder
        packages = "install the locked packages into an environment"
        if options.environment:
            packages = f"use the environment {options.environment}"
        elif options.offline:
            packages += f", from wheels in {options.wheels} on this computer"
        names = ", ".join(str(one) for one in models) or "none needed"
        how = "copy them if missing" if options.model_folders else "download them if missing"
        if options.offline and not options.model_folders:
            how = "which must be present"
        return [
            self._first(),
            ("room", f"check the free space; {size(SPARE)} must stay free", self._room),
            ("program", f"copy this version of Grader into {folder}/releases", self._program),
            ("packages", packages, self._packages),
            ("secrets", f"collect the variables of {folder}/grader.env", self._secrets_file),
            ("models", f"check {names}" + (f", {how}" if models else ""), self._models),
            (
                "service",
                f"write config.toml and grader.env, install {services}, restart what changed",
                self._install,
            ),
            ("start", "wait for a heartbeat; without one, restore the previous release", self._wait),
        ]

    def steps_back(self) -> list[Step]:
        """The steps of a rollback."""
        return [
            self._first(),
            (
                "service",
                "restore the previous release, with its environment, configuration and secrets",
                self._back,
            ),
            ("start", "wait for a heartbeat; without one, restore the current release", self._wait),
        ]

    def _first(self) -> Step:
        return (
            "machine",
            f"connect to {self.remote.address}, port {self.remote.ssh.port}; find Python",
            self._look,
        )

    def run(self, step: Step) -> str:
        """Do a step, as long as nobody else may deploy to the machine; what it says."""
        if self._lock is not None:
            self._lock.check()
        return step[2]()

    @property
    def _services(self) -> list[MachineService]:
        return services_of(self.machine, self.remote)

    def _run_remote(self, *words: str, stdin: bytes = b"", timeout_s: float = 60.0) -> Any:
        return self.remote.call(DEPLOY_SCRIPT, *words, stdin=stdin, timeout_s=timeout_s)

    def _look(self) -> str:
        begun = time()
        self.facts = self._run_remote("facts")
        self._refuse(begun, time())
        self.version, self._files = program()
        with Heartbeats(self.settings.config) as heartbeats:
            heartbeats.of(self.machine.name)  # Redis must answer before anything is changed
        self._kinds = {one.name: one.do("ready").kind for one in self._services}
        self._lock = Lock(self.remote, self.version)
        # what another deployment has left is known only now
        self.facts = self._run_remote("facts")
        free, system = size(self.facts["free"]), self.facts["platform"]
        return f"Python {self.facts['version']} at {self.facts['python']}, {system}, {free} free"

    def _refuse(self, begun: float, ended: float) -> None:
        """MachineError when the machine is not fit for it, before anything is changed there."""
        name, folder = self.machine.name, self.facts["folder"]
        if self.facts["readonly"]:
            raise MachineError(
                f"{name}: the disk of {folder} is mounted read-only. Check `dmesg` there and make it "
                "writable again, or set folder in [machines.ssh] to another disk."
            )
        if not self.facts["writable"]:
            raise MachineError(
                f"{name}: {self.remote.address} cannot write to {folder}. "
                "Create it for that user, or set folder in [machines.ssh]."
            )
        off = max(self.facts["clock"] - ended, begun - self.facts["clock"])
        if off > CLOCK_S:
            side = "ahead of" if self.facts["clock"] > ended else "behind"
            raise MachineError(
                f"{name}: its clock is {off / 60:.0f} min {side} this computer's. "
                "Set it (Linux: sudo timedatectl set-ntp true, macOS: sudo sntp -sS time.apple.com), then "
                "deploy again."
            )
        if self.facts["free"] < SPARE:
            raise full(name, folder, 0, self.facts["free"])

    # --- what is copied ---------------------------------------------------------------------------

    def _room(self) -> str:
        rooms = [room for one in wanted(self.machine) if (room := self._bring.needed(one))]
        wheels = self._wheels() if self._makes_environment else []
        if wheels:
            there = needed(self.remote, wheels, "wheels")
            unpacked = UNPACKED * sum(one.size for one in wheels)
            rooms.append(Room(there.where, there.device, there.needed + unpacked, there.free))
        for device in {room.device for room in rooms}:
            here = [room for room in rooms if room.device == device]
            count = sum(room.needed for room in here)
            if count + SPARE > here[0].free:
                raise full(self.machine.name, " and ".join(room.where for room in here), count, here[0].free)
        return f"{size(sum(room.needed for room in rooms))} to copy"

    def _program(self) -> str:
        # compared by hash each time, so that a release that broke off or was changed is made whole
        there = self.version in self.facts["releases"]
        where = f"releases/{'' if there else '.new-'}{self.version}"
        sent = copy(self.remote, self._files, where, self.progress)
        if not there:
            self._run_remote("settle", self.version)
        return f"version {self.version} " + (f"copied, {size(sent)}" if sent else "is present")

    @property
    def _locked(self) -> str:
        return lock_for(self.machine, self.facts["markers"])

    def _name_of(self, lock: str) -> str:
        """The name of an environment of these locked packages."""
        made_of = f"{self.facts['python']} {self.facts['version']}\n{lock}"
        return hashlib.sha256(made_of.encode()).hexdigest()[:12]

    @property
    def _makes_environment(self) -> bool:
        if self.options.environment or not self.options.offline:
            return False
        return self._name_of(self._locked) not in self.facts["environments"]

    def _packages(self) -> str:
        if self.options.environment:
            self.environment = self.options.environment
            if not self._run_remote("exists", f"{self.environment}/bin/python"):
                raise MachineError(f"{self.machine.name}: {self.environment}/bin/python does not exist.")
            return f"uses {self.environment}"
        return self.make_environment(self._locked)

    def make_environment(self, lock: str) -> str:
        """An environment of these locked packages, unless there is one."""
        name = self._name_of(lock)
        self.environment = f"{self.facts['folder']}/environments/{name}"
        count = lock.count("==")
        if name in self.facts["environments"]:
            return f"{count} packages are installed"
        if not self.facts["venv"]:
            raise MachineError(
                f"{self.machine.name}: {self.facts['python']} cannot create environments. Install its "
                "modules venv and ensurepip (Debian, Ubuntu: apt-get install python3-venv)."
            )
        words = ["environment", name]
        if self.options.offline:
            wheels = wheels_for(self.machine.name, lock, self.facts, self.options.wheels, self.say)
            sent = copy(self.remote, wheels, "wheels", self.progress)
            self.say(f"{len(wheels)} wheels, {size(sent)} copied")
            words.append("wheels")
        self.say(f"installing {count} packages (takes minutes)")
        self._run_remote(*words, stdin=lock.encode(), timeout_s=INSTALL_S)
        self.facts["environments"].append(name)
        return f"{count} packages installed" + (" from wheels" if self.options.offline else "")

    def _wheels(self) -> list[File]:
        return wheels_for(self.machine.name, self._locked, self.facts, self.options.wheels, self.say)

    @property
    def _bring(self) -> Models:
        if self._models_found is None:
            options = self.options
            self._models_found = Models(
                self.remote, options.model_folders, options.offline, options.quick, self.say, self.progress
            )
        return self._models_found

    @property
    def claims(self) -> list[Claim]:
        """The weights that were found or brought there."""
        return self._bring.claims

    def _models(self) -> str:
        found = [self._bring.bring(one, self.environment) for one in wanted(self.machine)]
        return "; ".join(found) or "none needed"

    # --- what is changed --------------------------------------------------------------------------

    def secrets(self) -> dict[str, str]:
        """The variables of grader.env that are given here."""
        host, there = self.remote.ssh.host, self._run_remote("secrets")
        return secrets_for(self.machine, self.settings.path, host, self.environ, there)

    def _secrets_file(self) -> str:
        found = self.secrets()
        self._variables = "".join(env_line(name, value) for name, value in found.items())
        return ", ".join(found) or "unchanged"

    def _install(self) -> str:
        config, folder = self.settings.config, self.facts["folder"]
        ca = authority(config.redis.ca_file) if config.redis.ca_file else ""
        services = []
        for one in self._services:
            kind, described = self._kinds[one.name], one.described(self.facts)
            content = described.rendered(kind)
            services.append({"name": one.name, "kind": kind, "content": content, "stop_s": one.grace_s + 20})
        wanted_now = {
            "version": self.version,
            "environment": self.environment,
            "config": config_for(
                self.machine.name, self.settings.path, f"{folder}/state/ca.pem" if ca else None
            ),
            "secrets": self._variables,
            "ca": ca,
            "used": used_by(self.machine.name, config),
            "services": services,
        }
        return self._begin(wanted_now)

    def _back(self) -> str:
        return f"{self._begin(None)}; version {self.version}"

    def _begin(self, wanted_now: dict[str, Any] | None) -> str:
        """Start the change; it is put back unless a heartbeat comes."""
        # not earlier: a worker that starts again during the steps before is not the new one
        with Heartbeats(self.settings.config) as heartbeats:
            self._before = heartbeats.of(self.machine.name)
        self._change = Change(self.remote, self._services, wanted_now, self.say)
        self._begun = self._change.begun()
        self.version = self._begun.version
        self.changed = _words(self._begun.changed)
        return ", ".join(f"{what} changed" for what in self.changed) or "nothing changed"

    def _wait(self) -> str:
        assert self._change is not None
        assert self._begun is not None
        with Heartbeats(self.settings.config) as heartbeats:
            return see_through(
                self._change, self._begun, self._services, heartbeats, self._before, self.options.wait_s
            )


def differences(settings: Settings, deployed: list[Deployment]) -> list[Difference]:
    """The models that deployed machines and others that send heartbeats claim to share, with different
    weights.
    """
    with Heartbeats(settings.config) as heartbeats:
        claims = heartbeats.claims()
    claims += [claim for one in deployed for claim in one.claims]
    claim_by_model = {(one.machine, one.engine, one.model): one for one in claims if one.digest}
    mine = {(model.engine, model.model) for one in deployed for model in wanted(one.machine)}
    return [one for one in differing(claim_by_model.values()) if (one.engine, one.model) in mine]


def _words(changed: list[str]) -> list[str]:
    """What changed, as people are told; a config.toml whose machine's own part is the same says so."""
    other = "config.toml" if "its part" in changed else "config.toml (nothing that it uses)"
    return [other if what == "config.toml" else what for what in changed if what != "its part"]
