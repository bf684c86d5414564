"""Running programs on a machine with the system's OpenSSH client: keys only, host keys always checked."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cli.deploy.remote import guard
from cli.deploy.session import STALLED_S, Session, Timeout
from grading.config.settings import Machine, Ssh
from grading.domain.errors import GraderError

CONNECT_S = 8
CALL_S = 60.0
LOST = 255
"""The exit status of ssh where there is no connection."""
OPTIONS = (
    "BatchMode=yes",
    "StrictHostKeyChecking=yes",
    f"ConnectTimeout={CONNECT_S}",
    "ConnectionAttempts=1",
    "ServerAliveInterval=5",
    "ServerAliveCountMax=3",
    "ForwardAgent=no",
    "ForwardX11=no",
    "ClearAllForwardings=yes",
    "PermitLocalCommand=no",
    "LogLevel=ERROR",
)
GUARD = Path(guard.__file__)
# $1 folder, $2 the wanted Python or nothing, $3 the guard, $4 its seconds, then the words of the program that
# the guard is sent. All come quoted.
LAUNCH = """
folder=$1; wanted=$2; guard=$3; own=$4; shift 4
case $folder in "~/"*) folder=$HOME/${folder#"~/"} ;; esac
PATH=$PATH:/opt/homebrew/bin:/usr/local/bin:/usr/bin:/bin; export PATH
for python in ${wanted:-python3.12 python3.11 python3 python3.13 python3.14 "$folder/environment/bin/python"}
do
    if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        exec "$python" -I -c "$guard" "$own" "$folder" "$@"
    fi
done
echo "refused: there is no ${wanted:-Python 3.11 or newer}" >&2
exit 1
"""
PYTHON_HELP = (
    " Install it (Debian, Ubuntu: apt-get install python3 python3-venv; macOS: brew install python@3.12) "
    "or name it in [machines.ssh] as python."
)

HELP = (
    (r"^there is no .*[Pp]ython", PYTHON_HELP),
    (r"No space left|quota exceeded", " Free some space there and deploy again; what runs is not changed."),
    (r"Read-only file system", " Check `dmesg` there and make its disk writable again. What runs continues."),
)
"""What to do about what a machine says."""


class MachineError(GraderError):
    """A machine cannot be reached, or something cannot be done there."""

    code = "machine_failed"
    status = 502


class Unreachable(MachineError):
    """No connection to the machine could be made."""

    code = "machine_unreachable"


@dataclass(frozen=True)
class Remote:
    """A machine and how to reach it. `config` is another ssh configuration than the operator's."""

    machine: str
    ssh: Ssh
    config: str | None = None

    @property
    def address(self) -> str:
        """As a person writes it."""
        return f"{self.ssh.user}@{self.ssh.host}" if self.ssh.user else self.ssh.host

    def argv(self, command: Iterable[str]) -> list[str]:
        """The local command line; every word of `command` is quoted for the shell over there."""
        words = ["ssh", "-T", *(["-F", self.config] if self.config else [])]
        for option in OPTIONS:
            words += ["-o", option]
        words += ["-p", str(self.ssh.port)]
        if self.ssh.user:
            words += ["-l", self.ssh.user]
        return [*words, "--", self.ssh.host, shlex.join(command)]

    def session(self, program: Path, *words: str, own_s: float = 0) -> Session:
        """Start a Python program there; it ends with the session, or `own_s` seconds later."""
        text = GUARD.read_text(encoding="utf-8")
        fixed = ["sh", "-c", LAUNCH, "grader", self.ssh.folder, self.ssh.python or "", text, str(own_s)]
        try:
            return Session(self.argv([*fixed, *words]), sendable(program))
        except FileNotFoundError:
            raise MachineError("This computer has no ssh. Install the OpenSSH client.") from None

    def call(
        self, program: Path, *words: str, stdin: bytes = b"", timeout_s: float = CALL_S, own_s: float = 0
    ) -> Any:
        """Run a Python program there; its last line is the JSON answer. Raises MachineError."""
        with self.session(program, *words, own_s=own_s) as session:
            with suppress(BrokenPipeError):
                session.send(stdin)
            session.end_input()
            return self.answer(session, timeout_s)

    def stream(self, program: Path, *words: str, write: Callable[[Callable[[bytes], None]], None]) -> Any:
        """Run a program there and feed it; ends when it takes nothing for minutes. Raises MachineError."""
        with self.session(program, *words) as session:
            with suppress(BrokenPipeError):
                write(session.send)
            session.end_input()
            return self.answer(session, CALL_S * 10)

    def answer(self, session: Session, timeout_s: float) -> Any:
        """What a program says last. Raises MachineError."""
        try:
            done = session.wait(timeout_s)
        except Timeout:
            raise MachineError(f"{self.machine}: no answer within {timeout_s:.0f} s; try again.") from None
        if session.stalled:
            raise MachineError(
                f"{self.machine}: the copy stopped for {STALLED_S:.0f} s and was ended. "
                "Run the command again: it continues there."
            )
        if done[0] == LOST and session.reached:
            raise MachineError(
                f"The connection to {self.machine} ({self.address}, port {self.ssh.port}) ended early. What "
                "it did there ends, too. Deploy again: it continues there."
            )
        return self._answer(*done)

    def ended(self, session: Session) -> None:
        """MachineError unless a program that answers nothing ended well."""
        status, out, error = session.wait(CALL_S)
        if status:
            self._answer(status, out, error)

    def _answer(self, status: int, out: bytes, error: bytes) -> Any:
        message = plain(error.decode("utf-8", "replace"))
        if status == LOST:
            raise Unreachable(self._why(message))
        if status:
            refused = re.findall(r"^refused: (.+)$", message, re.MULTILINE)
            reason = refused[-1] if refused else message.strip()[-300:] or f"ended with status {status}"
            help_ = next((text for sign, text in HELP if re.search(sign, reason)), "")
            raise MachineError(f"{self.machine}: {reason.rstrip('.')}.{help_}")
        return self.read(out)

    def read(self, line: bytes) -> Any:
        """What a line of a program says. Raises MachineError."""
        try:
            return _plain(json.loads(line))
        except ValueError:
            raise MachineError(f"{self.machine}: gave no readable answer.") from None

    def _why(self, message: str) -> str:
        """Why ssh made no connection, and what to do."""
        there = f"{self.machine} ({self.address}, port {self.ssh.port})"
        once = f"ssh -p {self.ssh.port} {self.address}"
        if "IDENTIFICATION HAS CHANGED" in message or "host key has just been changed" in message:
            return (
                f"{there} has a new host key. If the machine was installed again, remove the "
                f"old key with `ssh-keygen -R` and accept the new one with `{once}`; "
                "else find out who changed it."
            )
        if "host key" in message.lower():
            return (
                f"The host key of {there} is not known here. Run `{once}`, compare the fingerprint with "
                "`ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` on the machine, and accept it."
            )
        if "Permission denied" in message or "Too many authentication failures" in message:
            return (
                f"{there} does not accept this computer's key. Run "
                f"`ssh-copy-id -p {self.ssh.port} {self.address}`; a key with a passphrase needs ssh-agent."
            )
        last = (message.strip().splitlines() or ["ssh gave no reason"])[-1]
        return f"{there} cannot be reached: {last.rstrip('.')}. Is it on, and is remote login enabled?"


def sendable(program: Path) -> bytes:
    """A program as the guard takes it, with the modules of its folder that it imports."""
    text = program.read_text(encoding="utf-8")
    names = re.findall(r"^from cli\.deploy\.remote import (\w+)$", text, re.MULTILINE)
    modules = {f"cli.deploy.remote.{name}": (program.parent / f"{name}.py").read_text() for name in names}
    return json.dumps({"modules": modules, "program": text}).encode()


def remote_of(machine: Machine, environ: Mapping[str, str] = os.environ) -> Remote:
    """How to reach a machine; MachineError when config.toml does not say it."""
    if machine.ssh is None:
        raise MachineError(
            f"{machine.name} has no [machines.ssh] in config.toml, so it is not managed from here. "
            f"Run `grader worker {machine.name}` there."
        )
    return Remote(machine.name, machine.ssh, environ.get("GRADER_SSH_CONFIG"))


def plain(text: str) -> str:
    """Text of another machine without what would steer this terminal."""
    return re.sub(r"[^\n\t\x20-\x7e\xa0-\U0010ffff]", "", text)


def _plain(answer: Any) -> Any:
    """An answer whose texts are plain."""
    if isinstance(answer, str):
        return plain(answer)
    if isinstance(answer, dict):
        return {plain(str(key)): _plain(value) for key, value in answer.items()}
    return [_plain(value) for value in answer] if isinstance(answer, list) else answer
