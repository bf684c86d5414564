"""What runs on a machine to change what it uses: a release, its environment, config.toml and secrets.

A folder `states/N` holds links to a release and an environment, config.toml, grader.env and the texts of the
services. The link `state` names the one in use, `previous` the one before it. A change holds only when the
server says so: without its word, as when the connection ends, the machine goes back by itself.

Standard library only: the server sends this text, and `service.py` with it. The first word is the folder of
Grader there, the second the verb; each line printed is JSON.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cli.deploy.remote import service

NAMES = {
    "current": "release",
    "environment": "environment",
    "config.toml": "config.toml",
    "grader.env": "grader.env",
}
"""What is found in Grader's folder, and what it is in the state in use."""
WORDS = {
    "grader.env": "grader.env",
    "config.toml": "config.toml",
    "used.json": "its part",
    "ca.pem": "ca.pem",
    "release": "program",
    "environment": "packages",
    "services.json": "service",
}
"""What a state consists of, and how people are told that it changed."""
POLL_S = 0.5
WAIT_S = 45.0
"""How long another change that has not ended here is waited for; the server waits a minute."""
MOST_MISSED = 3
"""How often a service may be seen not to run before it counts as ended."""


@dataclass
class States:
    """The states of a machine."""

    folder: Path

    def named(self, name: str) -> Path | None:
        """The state that a link names."""
        path = self.folder / name
        return path.resolve() if path.is_symlink() and path.is_dir() else None

    def make(self, wanted: dict[str, Any]) -> Path:
        """A new state that nobody uses yet."""
        made = self.folder / "states" / ".new"
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir(parents=True)
        (made / "release").symlink_to(f"../../releases/{wanted['version']}")
        (made / "environment").symlink_to(Path(wanted["environment"]).expanduser())
        files = {
            "config.toml": wanted["config"],
            "grader.env": merged(self.folder / "grader.env", wanted["secrets"]),
            "used.json": wanted["used"],
            "services.json": json.dumps(wanted["services"], indent=1),
            **({"ca.pem": wanted["ca"]} if wanted["ca"] else {}),
        }
        for name, text in files.items():
            with os.fdopen(os.open(made / name, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        return made

    def settle(self, made: Path) -> Path:
        """Give a new state its number."""
        numbers = [int(path.name) for path in self.numbered()]
        final = made.with_name(str(max(numbers, default=0) + 1))
        os.replace(made, final)
        return final

    def numbered(self) -> list[Path]:
        """All states that were ever used and not removed since."""
        return [path for path in (self.folder / "states").iterdir() if path.name.isdigit()]

    def use(self, state: Path, before: Path | None) -> None:
        """From now on use this state, all of it at once; `before` is the one to go back to."""
        if before is None:
            (self.folder / "previous").unlink(missing_ok=True)
        else:
            self._link("previous", f"states/{before.name}")
        self._link("state", f"states/{state.name}")
        for name, within in NAMES.items():
            self._link(name, f"state/{within}")

    def _link(self, name: str, target: str) -> None:
        path, new = self.folder / name, self.folder / f".{name}.new"
        if path.is_symlink() and os.readlink(path) == target:
            return
        new.unlink(missing_ok=True)
        new.symlink_to(target)
        os.replace(new, path)

    def tidy(self) -> None:
        """Remove all that neither the state in use nor the previous one needs."""
        kept = [state for state in (self.named("state"), self.named("previous")) if state]
        used = {os.path.realpath(state / name) for state in kept for name in (".", "release", "environment")}
        for kind in ("states", "releases", "environments"):
            for path in (self.folder / kind).glob("*"):
                if os.path.realpath(path) not in used:
                    shutil.rmtree(path, ignore_errors=True)


def merged(path: Path, lines: str) -> str:
    """The file of secrets with these variables; those that it has besides stay."""
    new = {line.split("=", 1)[0]: line for line in lines.splitlines() if line}
    old = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    kept = {line.split("=", 1)[0]: line for line in old if line}
    return "".join(f"{line}\n" for line in sorted({**kept, **new}.values()))


def differences(old: Path | None, new: Path) -> list[str]:
    """What another state changes, in words."""
    return [what for name, what in WORDS.items() if content(old, name) != content(new, name)]


def content(state: Path | None, name: str) -> str:
    """A part of a state: where a link points, or what a file holds."""
    path = state / name if state is not None else None
    return (target(path) or text(path)) if path is not None else ""


def text(path: Path) -> str:
    """What a file holds, nothing where there is none or a folder."""
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def target(path: Path) -> str:
    """What a link points to."""
    return os.readlink(path) if path.is_symlink() else ""


@dataclass
class Change:
    """From one state to another and, if need be, back. `old` is the last one that was kept."""

    states: States
    old: Path | None
    new: Path
    previous: Path | None
    """What could be gone back to before."""
    ran: dict[Path, bool] = field(default_factory=dict)
    """Whether each service ran before."""
    pids: dict[str, int] = field(default_factory=dict)
    missed: int = 0

    def services(self, state: Path) -> list[tuple[Any, str]]:
        """The services of a state, each with its text."""
        rows = json.loads(text(state / "services.json") or "[]")
        return [
            (service.KINDS[row["kind"]](self.states.folder, row["name"], row["stop_s"]), row["content"])
            for row in rows
        ]

    def others(self, state: Path) -> list[Any]:
        """The installed services of other states that this one does not have."""
        own = {one.path for one, _ in self.services(state)}
        found = {one.path: one for other in self.states.numbered() for one, _ in self.services(other)}
        return [one for path, one in found.items() if path not in own and path.exists()]

    @property
    def ran_before(self) -> list[str]:
        """The services of the new state that ran before."""
        return [one.name for one, _ in self.services(self.new) if self.ran.get(one.path)]

    def apply(self, changed: list[str], force: bool) -> list[str]:
        """Use the new state, start what does not run and start again what has changed; what was started."""
        both, gone = self.services(self.new), self.others(self.new)
        self.ran = {one.path: one.state()["running"] for one in (*gone, *(one for one, _ in both))}
        again = force or any(what != "config.toml" for what in changed)
        # what no worker notices leaves the release to go back to as it is
        self.states.use(self.new, self.old if again else self.previous)
        for one in gone:
            say({"stopping": one.name})
            one.remove()
        for one, content in both:
            if one.install(content.encode()):
                again = True
                changed += [] if "service" in changed else ["service"]
        started = []
        for one, _ in both:
            if self.ran[one.path] and not again:
                continue
            if self.ran[one.path]:
                say({"stopping": one.name})
                one.stop()
            one.start()
            started.append(one.name)
        return started

    def died(self) -> bool:
        """Whether a service ended since it was started, also when its manager started it again."""
        states = [(one.name, one.state()) for one, _ in self.services(self.new)]
        runs = all(state["running"] and state["pid"] for _, state in states)
        self.missed = 0 if runs else self.missed + 1
        for name, state in states:
            if state["pid"] and self.pids.setdefault(name, state["pid"]) != state["pid"]:
                return True
        return self.missed > MOST_MISSED

    def back(self) -> dict[str, Any]:
        """Return to the state before; what came of it, with the end of the log of what failed."""
        logs = [one.log(service.LOG_LINES) for one, _ in self.services(self.new)]
        answer = {"kept": False, "log": "\n".join(logs).strip(), "version": "", "runs": False}
        if self.old is None or self.old == self.new:
            return {**answer, "same": self.old == self.new}
        for one, _ in self.services(self.new):
            one.stop()
        for one in self.others(self.old):
            one.remove()
        self.states.use(self.old, self.previous)
        for one, content in self.services(self.old):
            one.install(content.encode())
            if self.ran.get(one.path):
                one.start()
        again = [one.state()["running"] for one, _ in self.services(self.old) if self.ran.get(one.path)]
        return {**answer, "version": release_of(self.old), "runs": bool(again) and all(again)}


def release_of(state: Path) -> str:
    """The version of a state."""
    return target(state / "release").rpartition("/")[2]


def word(change: Change) -> str:
    """What the server decides; `lost` when its connection ended, `died` when a service has."""
    heard = b""
    while not heard.endswith(b"\n"):
        if select.select([0], [], [], POLL_S)[0]:
            piece = os.read(0, 64)
            if not piece:
                return "lost"
            heard += piece
        elif change.died():
            return "died"
    return heard.decode("ascii", "replace").strip()


def carry_out(change: Change, changed: list[str], force: bool) -> dict[str, Any]:
    """Change over and wait for the server's word; how it ended."""
    try:
        started = change.apply(changed, force)
        change.died()  # what runs now is what must go on
        begun = {"changed": changed, "started": started, "ran": change.ran_before}
        say({**begun, "version": release_of(change.new)})
        decided = word(change) if started else "keep"
    except (service.Refused, OSError) as error:
        return {**change.back(), "why": str(error)}
    if decided != "keep":
        return {**change.back(), "why": decided}
    (change.new / "kept").touch()
    change.states.tidy()
    return {"kept": True}


def activate(folder: Path) -> dict[str, Any]:
    """Use what the first line of standard input describes; the second says whether to keep it."""
    states, wanted = States(folder), json.loads(line())
    now, previous = states.named("state"), states.named("previous")
    kept = now is not None and (now / "kept").exists()
    made = states.make(wanted)
    changed = differences(now, made)
    if now is not None and not changed:
        shutil.rmtree(made)
        new = now
    else:
        new = states.settle(made)
    # what was never kept was broken off: nobody knows what runs
    return carry_out(Change(states, now if kept else previous, new, previous), changed, force=not kept)


def back(folder: Path) -> dict[str, Any]:
    """Use the previous state; the word on standard input says whether to keep it."""
    states = States(folder)
    now, previous = states.named("state"), states.named("previous")
    if now is None or previous is None:
        raise service.Refused("there is no previous release")
    return carry_out(Change(states, now, previous, previous), differences(now, previous), force=True)


def line() -> bytes:
    """The first line of standard input, and nothing after it."""
    found = bytearray()
    while not found.endswith(b"\n"):
        piece = os.read(0, 1)
        if not piece:
            raise service.Refused("the server disconnected before it decided")
        found += piece
    return bytes(found)


def say(answer: dict[str, Any]) -> None:
    """Tell the server, if it is still there."""
    try:
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    except OSError:
        pass


def take(folder: Path) -> None:
    """Lock the folder until this process ends, which may be long after its connection has.

    Refused when another change has not ended for too long.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / ".change.lock", os.O_RDWR | os.O_CREAT, 0o600)

    def taken() -> bool:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    service.wait(taken, WAIT_S, "another deployment is still changing this machine")


def main(folder: str, verb: str) -> int:
    """Do a verb; a refusal is one sentence and status 1."""
    os.umask(0o077)
    try:
        take(Path(folder))
        answer = {"activate": activate, "back": back}[verb](Path(folder))
    except (service.Refused, OSError, ValueError) as error:
        sys.stderr.write(f"refused: {error}\n")
        return 1
    say(answer)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
