"""The service of Grader on this machine, under systemd, launchd or in a session of its own.

The server hands this text to the machine's Python over SSH; nothing needs to be installed there.
The words are the folder of Grader there, what to do, the kind of service, its name, and the seconds it has
to end; the last line printed is JSON.
"""

from __future__ import annotations

import fcntl
import getpass
import json
import os
import plistlib
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

LOG_LINES = 15
LINGER = "services of {user} stop when the user signs out; run there once: sudo loginctl enable-linger {user}"


class Refused(Exception):
    """Something that cannot be done here, in a sentence."""


def tool(*words: str, timeout_s: float = 60, check: bool = True) -> str:
    """What a program of the system says."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=timeout_s, check=False)
    except FileNotFoundError:
        raise Refused(f"{words[0]} is not installed on this machine") from None
    except subprocess.TimeoutExpired:
        raise Refused(f"{' '.join(words[:3])} did not end within {timeout_s:.0f} s") from None
    if check and done.returncode:
        raise Refused(f"{' '.join(words[:3])}: {(done.stderr or done.stdout).strip()[-300:]}")
    return done.stdout


def write(path: Path, content: bytes, mode: int) -> bool:
    """Write a file whole or not at all; False when it was the same already."""
    try:
        if path.read_bytes() == content and path.stat().st_mode & 0o777 == mode:
            return False
    except OSError:
        pass
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        os.fchmod(file.fileno(), mode)
        os.fsync(file.fileno())
    os.replace(new, path)
    return True


class Systemd:
    """A unit of the system for root, of the user for anybody else."""

    def __init__(self, folder: Path, name: str, stop_s: float) -> None:
        self.unit, self.stop_s = f"grader-{name}.service", stop_s
        self.name = name
        root = os.getuid() == 0
        self.scope = [] if root else ["--user"]
        self.path = (Path("/etc") if root else Path.home() / ".config") / (
            f"systemd/{'system' if root else 'user'}/{self.unit}"
        )
        os.environ.setdefault("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}")

    def control(self, *words: str, timeout_s: float = 60) -> str:
        """Run systemctl."""
        try:
            return tool("systemctl", *self.scope, *words, timeout_s=timeout_s)
        except Refused as error:
            if self.scope and "connect to bus" in str(error):  # nobody's systemd runs
                raise Refused(LINGER.format(user=getpass.getuser())) from None
            raise

    def install(self, content: bytes) -> bool:
        """Write what describes it; True when that changed."""
        changed = write(self.path, content, 0o644)
        if changed:
            self.control("daemon-reload")
        self.control("enable", self.unit)
        return changed

    def ready(self) -> None:
        """Refused where services end with whoever is signed in."""
        if self.scope:
            tool("loginctl", "enable-linger", check=False)
            user = getpass.getuser()
            if "Linger=no" in tool("loginctl", "show-user", user, "--property=Linger", check=False):
                raise Refused(LINGER.format(user=user))

    def start(self) -> None:
        """Start it, unless it runs."""
        self.control("start", self.unit)

    def stop(self) -> None:
        """End it, after the time it may take."""
        self.control("stop", self.unit, timeout_s=self.stop_s + 30)

    def remove(self) -> None:
        """End it, and let nothing start it again."""
        self.stop()
        self.control("disable", self.unit)
        self.path.unlink(missing_ok=True)
        self.control("daemon-reload")

    def state(self) -> dict[str, Any]:
        """Whether it is installed and running."""
        output = self.control(
            "show", self.unit, "--property=LoadState,ActiveState,SubState,MainPID,NRestarts"
        )
        found = dict(line.split("=", 1) for line in output.splitlines() if "=" in line)
        return {
            "installed": found.get("LoadState") == "loaded",
            "running": found.get("ActiveState") in ("active", "activating", "deactivating", "reloading"),
            "pid": int(found.get("MainPID") or 0),
            "detail": f"{found.get('SubState', '')}, {found.get('NRestarts', '0')} restarts",
        }

    def log(self, count: int) -> str:
        """Its last lines."""
        return tool(*self.shows(count), check=False)

    def shows(self, count: int, *, follow: bool = False) -> list[str]:
        """The program that shows its last lines, and those that come."""
        scope = ["--user-unit" if self.scope else "--unit", self.unit]
        words = ["journalctl", *scope, f"--lines={count}", "--no-pager", "--output=cat"]
        return [*words, "--follow"] if follow else words


class Launchd:
    """A daemon of the system for root, an agent of the user for anybody else."""

    def __init__(self, folder: Path, name: str, stop_s: float) -> None:
        self.label, self.stop_s = f"grader.{name}", stop_s
        self.name = name
        self.logfile = folder / "var" / f"{name}.log"
        uid = os.getuid()
        where = Path("/Library/LaunchDaemons") if uid == 0 else Path.home() / "Library/LaunchAgents"
        self.path = where / f"{self.label}.plist"
        self.domains = ["system"] if uid == 0 else [f"gui/{uid}", f"user/{uid}"]

    def ready(self) -> None:
        """Nothing is needed."""

    def loaded(self) -> tuple[str, str]:
        """The domain that has it and what it says of it."""
        for domain in self.domains:
            output = tool("launchctl", "print", f"{domain}/{self.label}", check=False)
            if output:
                return domain, output
        return "", ""

    def install(self, content: bytes) -> bool:
        """Write what describes it; True when that changed."""
        plistlib.loads(content)
        self.logfile.parent.mkdir(parents=True, exist_ok=True)
        return write(self.path, content, 0o644)

    def start(self) -> None:
        """Start it, unless it runs."""
        if self.state()["running"]:
            return
        if self.loaded()[0]:
            self.stop()
        refused = None
        for domain in self.domains:  # without a session on the screen there is no gui domain
            try:
                tool("launchctl", "bootstrap", domain, str(self.path))
                return
            except Refused as error:
                refused = error
        raise refused or Refused("launchd refused the service")

    def stop(self) -> None:
        """End it, after the time it may take."""
        domain, _ = self.loaded()
        if not domain:
            return
        tool("launchctl", "bootout", f"{domain}/{self.label}", timeout_s=self.stop_s + 30, check=False)
        wait(lambda: not self.loaded()[0], self.stop_s + 30, "launchd did not stop it")

    def remove(self) -> None:
        """End it, and let nothing start it again."""
        self.stop()
        self.path.unlink(missing_ok=True)

    def state(self) -> dict[str, Any]:
        """Whether it is installed and running."""
        domain, output = self.loaded()
        found = dict(re.findall(r"^\t(\w+) = (.*)$", output, re.MULTILINE))  # further in are other states
        return {
            "installed": self.path.exists(),
            "running": found.get("state") == "running",
            "pid": int(found.get("pid", "0")),
            "detail": domain,
        }

    def log(self, count: int) -> str:
        """Its last lines."""
        return tail(self.logfile, count)

    def shows(self, count: int, *, follow: bool = False) -> list[str]:
        """The program that shows its last lines, and those that come."""
        return shows(self.logfile, count, follow)


class Supervised:
    """A process of its own session whose lock on a file says that it lives. Nothing starts it again."""

    def __init__(self, folder: Path, name: str, stop_s: float) -> None:
        self.var, self.stop_s = folder / "var", stop_s
        self.name = name
        self.path = self.var / f"{name}.service.json"
        self.pidfile, self.logfile = self.var / f"{name}.pid", self.var / f"{name}.log"

    def install(self, content: bytes) -> bool:
        """Write what describes it; True when that changed."""
        json.loads(content)
        return write(self.path, content, 0o600)

    def ready(self) -> None:
        """Nothing is needed."""

    def lock(self) -> int | None:
        """The lock, or None when the process holds it: a pid alone might be another process by now."""
        self.var.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(self.pidfile, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return None
        return lock

    def pid(self) -> int:
        """The process, and its group; 0 when it is not running."""
        if not self.pidfile.exists():
            return 0
        lock = self.lock()
        if lock is not None:
            os.close(lock)
            return 0
        written = self.pidfile.read_text(encoding="ascii").strip()
        return int(written) if written.isdigit() and int(written) > 1 else 0

    def start(self) -> None:
        """Start it, unless it runs."""
        service = json.loads(self.path.read_text(encoding="utf-8"))
        lock = self.lock()
        if lock is None:
            return
        with self.logfile.open("ab") as output:
            process = subprocess.Popen(
                service["command"],
                cwd=service["folder"],
                env={**os.environ, **service["environment"]},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                pass_fds=[lock],
            )
        os.ftruncate(lock, 0)
        os.pwrite(lock, b"%d\n" % process.pid, 0)
        os.close(lock)

    def stop(self) -> None:
        """End it, after the time it may take."""
        for number, limit_s in ((signal.SIGTERM, self.stop_s), (signal.SIGKILL, 10.0)):
            pid = self.pid()
            if not pid:
                return
            if os.getpgid(pid) != pid:
                raise Refused(f"{self.pidfile} names process {pid}, which Grader did not start")
            os.killpg(pid, number)
            deadline = time.monotonic() + limit_s
            while self.pid() and time.monotonic() < deadline:
                time.sleep(0.05)
        if self.pid():
            raise Refused("the process did not stop")

    def remove(self) -> None:
        """End it, and forget what it was."""
        self.stop()
        self.path.unlink(missing_ok=True)

    def state(self) -> dict[str, Any]:
        """Whether it is installed and running."""
        pid = self.pid()
        return {"installed": self.path.exists(), "running": bool(pid), "pid": pid, "detail": ""}

    def log(self, count: int) -> str:
        """Its last lines."""
        return tail(self.logfile, count)

    def shows(self, count: int, *, follow: bool = False) -> list[str]:
        """The program that shows its last lines, and those that come."""
        return shows(self.logfile, count, follow)


def kind() -> str:
    """What keeps services running here."""
    if sys.platform == "darwin":
        return "launchd"
    return "systemd" if Path("/run/systemd/system").exists() and shutil.which("systemctl") else "supervised"


KINDS: dict[str, Any] = {"systemd": Systemd, "launchd": Launchd, "supervised": Supervised}


def wait(reached: Any, timeout_s: float, what: str) -> None:
    """Return when it is so; Refused with a sentence after the time."""
    deadline = time.monotonic() + timeout_s
    while not reached():
        if time.monotonic() > deadline:
            raise Refused(f"{what} within {timeout_s:.0f} s")
        time.sleep(0.1)


def tail(path: Path, count: int) -> str:
    """The last lines of a file."""
    if not path.exists():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 300 * count))
        return "\n".join(file.read().decode("utf-8", "replace").splitlines()[-count:])


def shows(path: Path, count: int, follow: bool) -> list[str]:
    """The program that shows the last lines of a file, and those that come."""
    if not path.exists():
        raise Refused("there is no log")
    return ["tail", "-n", str(count), *(["-F"] if follow else []), str(path)]


def logs(folder: Path, wanted: str, name: str, count: str, follow: str = "") -> int:
    """Show the log of a service; the exit status."""
    one = KINDS[kind() if wanted == "auto" else wanted](folder, name, 0.0)
    return subprocess.run(one.shows(int(count), follow=bool(follow)), check=False).returncode


def service(folder: Path, action: str, wanted: str, name: str, stop_s: str) -> dict[str, Any]:
    """Install, start, stop or look at a service; says how it is afterwards."""
    chosen = kind() if wanted == "auto" else wanted
    one = KINDS[chosen](folder, name, float(stop_s))
    answer: dict[str, Any] = {"kind": chosen, "changed": False}
    if action in ("start", "stop", "restart") and not one.state()["installed"]:
        raise Refused("nothing is installed here; run `grader deploy` first")
    if action == "ready":
        one.ready()
    elif action == "install":
        answer["changed"] = one.install(sys.stdin.buffer.read())
    elif action == "start":
        answer["changed"] = not one.state()["running"]
        one.start()
    elif action in ("stop", "restart"):
        answer["changed"] = one.state()["running"]
        one.stop()
        if action == "restart":
            one.start()
    elif action == "log":
        answer["log"] = one.log(LOG_LINES)
    release = folder / "current"
    version = os.path.realpath(release).rpartition("/")[2] if release.is_symlink() else ""
    return {**answer, **one.state(), "version": version}


def main(folder: str, *words: str) -> int:
    """Do it; a refusal is one sentence and status 1."""
    os.umask(0o077)
    try:
        if words[0] == "logs":
            return logs(Path(folder), *words[1:])
        answer = service(Path(folder), *words)
    except (Refused, OSError, ValueError) as error:
        sys.stderr.write(f"refused: {error}\n")
        return 1
    sys.stdout.write("\n" + json.dumps(answer) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
