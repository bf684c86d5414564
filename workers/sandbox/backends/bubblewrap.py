"""The bubblewrap backend: sandboxes in namespaces of their own, and what to do where it does not work."""

from __future__ import annotations

import os
import random
import select
import shutil
import subprocess
import threading
import weakref
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from grading.config.settings import Limits
from grading.domain.errors import SandboxUnavailable
from workers.sandbox.backends import filesystem_view, seccomp
from workers.sandbox.backends.base import Prepared, SandboxSpec, Session
from workers.sandbox.backends.bwrap_process import Held
from workers.sandbox.backends.fork_servers import CannotFork, Forked, ForkServer, ForkServers
from workers.sandbox.backends.json_lines import PipedSession, Program, environment
from workers.sandbox.backends.watchdog import Watcher

NO_SECCOMP = (
    "libseccomp is missing, so sandboxes may make every system call. Install it (Debian, Ubuntu: "
    "apt-get install libseccomp2)."
)
_APPARMOR = (
    "Ubuntu keeps ordinary users from making namespaces. As root: apt-get install apparmor-profiles; "
    "ln -s /usr/share/apparmor/extra-profiles/bwrap-userns-restrict /etc/apparmor.d/; "
    "apparmor_parser -r /etc/apparmor.d/bwrap-userns-restrict"
)
_PACKAGES = {"bwrap": "bubblewrap", "setpriv": "util-linux", "prlimit": "util-linux"}


def missing_programs(programs: Sequence[str]) -> str:
    """The sentence about programs that are not installed."""
    packages = " ".join(dict.fromkeys(_PACKAGES[name] for name in programs))
    return (
        f"The sandbox needs {', '.join(programs)} and does not find it. Install it "
        f"(Debian, Ubuntu: apt-get install {packages})."
    )


def refused(said: str) -> str:
    """The sentence about a bubblewrap that is there but cannot open a sandbox; `said` is what it printed."""
    remedy = "It must be 0.7 or newer." if "nknown option" in said else _remedy()
    return f"bubblewrap cannot open a sandbox here ({said[:300]}). {remedy}"


def _remedy() -> str:
    if _setting("kernel/apparmor_restrict_unprivileged_userns") == "1" and os.geteuid() != 0:
        return _APPARMOR
    if _setting("kernel/unprivileged_userns_clone") == "0" and os.geteuid() != 0:
        return "As root: sysctl -w kernel.unprivileged_userns_clone=1"
    if _setting("user/max_user_namespaces") == "0" and os.geteuid() != 0:
        return "As root: sysctl -w user.max_user_namespaces=15000"
    return (
        "In a container it needs --security-opt seccomp=unconfined --security-opt apparmor=unconfined "
        "--security-opt systempaths=unconfined and, as root, --cap-add SYS_ADMIN --cap-add NET_ADMIN; or set "
        'sandbox.backend to "container".'
    )


def _setting(name: str) -> str:
    try:
        return Path("/proc/sys", name).read_text().strip()
    except OSError:
        return ""


_START_S = 10.0
# it repeats what it is told, so that we know when it is in the namespace
_HOLDER = ("unshare", "--user", "--map-current-user", "--", "cat")


class NoNamespace(OSError):
    """The system gives us no user namespace."""


class SharedUsers:
    """One user namespace, which is there from the first use until nobody holds this any more."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._number: int | None = None

    def number(self) -> int | None:
        """A descriptor of it; None for root, whose sandboxes share root's. Raises NoNamespace."""
        if os.geteuid() == 0:
            return None
        with self._lock:
            if self._number is None:
                self._number = _made()
                weakref.finalize(self, os.close, self._number)
            return self._number


def _made() -> int:
    try:
        holder = subprocess.Popen(
            _HOLDER,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            cwd="/",
            env={"LANG": "C.UTF-8", "PATH": os.environ.get("PATH", os.defpath)},
        )
    except OSError as error:
        raise NoNamespace(f"no user namespace: {error}") from error
    with holder:  # the descriptor keeps the namespace when nobody is in it
        try:
            return _entered(holder)
        finally:
            holder.kill()


def _entered(holder: subprocess.Popen[bytes]) -> int:
    assert holder.stdin is not None
    assert holder.stdout is not None
    with suppress(BrokenPipeError):
        holder.stdin.write(b"\n")
    poll = select.poll()
    poll.register(holder.stdout, select.POLLIN)
    if not poll.poll(_START_S * 1000) or not holder.stdout.read(1):
        raise NoNamespace("no user namespace: unshare --user --map-current-user failed")
    place = Path(f"/proc/{holder.pid}/ns/user")
    try:
        return os.open(place, os.O_RDONLY)
    except OSError as error:
        raise NoNamespace(f"no user namespace: {error}") from error


_PROGRAMS = ("bwrap", "setpriv")
_PROBE = SandboxSpec(("/usr/bin/env", "true"), limits=Limits(disk_mb=1))
_PROBE_S = 10.0
_PREPARED_MB = 16
"""What a fork server may write; R makes a folder for temporary files."""
_UNUSED_UIDS = range(0x70000000, 0x7FFFFFFF)
"""Numbers that no distribution, container engine or service manager hands out."""


class Bubblewrap:
    """Boxes by bubblewrap; docs/explanation/sandbox.md says what is shut off."""

    name = "bubblewrap"

    def __init__(self) -> None:
        self._watcher = Watcher()
        self._works = False
        self._lock = threading.Lock()
        self._uids: set[int] = set()
        self._users = users = SharedUsers()
        self.fork_servers = ForkServers(
            lambda prepared, control: _start_prepared(prepared, control, users.number())
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What is weaker here than it could be, as sentences; empty when all is in place."""
        return () if seccomp.program() else (NO_SECCOMP,)

    def problem(self) -> str:
        """Why no sandbox can be opened; empty when one could. A success is remembered."""
        if self._works:
            return ""
        missing = [name for name in _PROGRAMS if shutil.which(name) is None]
        if missing:
            return missing_programs(missing)
        uid = self._take_uid()
        try:
            said = _probe(uid)
        finally:
            self._give_uid(uid)
        self._works = said is None
        return "" if said is None else refused(said)

    def _take_uid(self) -> int:
        """A user number that no other sandbox has; our own where we are not root."""
        if os.geteuid() != 0:
            return os.geteuid()
        allowed = _allowed_uids()
        with self._lock:
            while (uid := random.randrange(allowed.start, allowed.stop)) in self._uids:
                pass
            self._uids.add(uid)
            return uid

    def _give_uid(self, uid: int) -> None:
        with self._lock:
            self._uids.discard(uid)

    def open(self, spec: SandboxSpec) -> Session:
        """Start the program of a sandbox. Raises SandboxUnavailable.

        It ends with the thread that started it, whatever becomes of the process; the kernel sees to it, so
        that no sandbox outlives its worker.
        """
        filesystem_view.check_program(spec)
        server = None if spec.prepared is None else self.fork_servers.find(spec.prepared)
        program = self._program(spec, server)
        if program is None and server is not None:
            self.fork_servers.failed("no box could be made for it")
            program = self._program(spec, None)
        if program is None:
            self._works = False
            raise SandboxUnavailable(self.problem() or "The sandbox could not be started this time.")
        return PipedSession(program, spec.limits, self._watcher)

    def _program(self, spec: SandboxSpec, server: ForkServer | None) -> Program | None:
        """The program of a sandbox; None when bwrap gave up before. Raises SandboxUnavailable."""
        # an ordinary user's sandbox can be entered only if it lies where fork servers are
        users = None if server is None else self._users.number()
        uid = self._take_uid()
        try:
            held = Held(
                lambda status, go: _start(spec, uid, status=status, go=go, users=users),
                lambda: self._give_uid(uid),
            )
        except SandboxUnavailable:
            self._give_uid(uid)
            raise
        program = self._begin(held, spec, uid, server)
        if program is None:
            held.kill()
            held.release()
        return program

    def _begin(self, held: Held, spec: SandboxSpec, uid: int, server: ForkServer | None) -> Program | None:
        """Its program, forked where that can be, else started; None when bwrap gave up before."""
        if not held.hold(spec.limits):
            return None
        if server is not None:
            try:
                forked = Forked(held, server, uid, spec.limits)
            except CannotFork as error:
                self.fork_servers.failed(str(error))
            else:
                self.fork_servers.forked()
                return forked
        return held if held.go() else None


def _probe(uid: int) -> str | None:
    """Open a sandbox that does nothing; None when that went well, otherwise what bubblewrap said."""
    try:
        with _start(_PROBE, uid) as process:
            try:
                _, said = process.communicate(timeout=_PROBE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                return "it did not answer"
    except OSError as error:
        return str(error)
    return None if process.returncode == 0 else said.decode(errors="replace").strip() or "it gave no reason"


def _start(
    spec: SandboxSpec, uid: int, *, status: int | None = None, go: int | None = None, users: int | None = None
) -> subprocess.Popen[bytes]:
    """Start bwrap, within the user namespace `users`; it tells what happens at `status` and waits for a byte
    at `go`. Without: a sandbox that is only tried out. Raises OSError and SandboxUnavailable.
    """
    passed: list[int] = []
    into: list[str] = []
    with ExitStack() as carried:

        def carry(content: bytes) -> str:
            descriptor = os.memfd_create("sandbox")
            carried.callback(os.close, descriptor)
            os.write(descriptor, content)
            os.lseek(descriptor, 0, os.SEEK_SET)
            passed.append(descriptor)
            return str(descriptor)

        arguments = _arguments(spec)
        for path, content in filesystem_view.people(uid).items():
            arguments += ["--perms", "0444", "--file", carry(content), path]
        if seccomp.program():
            arguments += ["--seccomp", carry(seccomp.program())]
        for option, descriptor in (("--json-status-fd", status), ("--block-fd", go)):
            if descriptor is not None:
                arguments += [option, str(descriptor)]
                passed.append(descriptor)
        if users is not None:
            into = ["nsenter", f"--user=/proc/self/fd/{users}", "--preserve-credentials", "--"]
            arguments += ["--sync-fd", str(users)]  # closed before the program starts
            passed.append(users)
        arguments += ["--remount-ro", "/"]
        # in a file, because everybody inside can read the command line of the first process
        given = carry(b"".join(os.fsencode(argument) + b"\0" for argument in arguments))
        bwrap = [*into, shutil.which("bwrap") or "bwrap", "--args", given, "--"]
        return _open([*bwrap, *_inside(spec.argv, uid)], passed, tried=status is None)


def _open(command: Sequence[str], passed: Sequence[int], *, tried: bool) -> subprocess.Popen[bytes]:
    """Start a command with these descriptors; one that is only `tried` out talks to nobody, but says why."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL if tried else subprocess.PIPE,
        stdout=subprocess.DEVNULL if tried else subprocess.PIPE,
        stderr=subprocess.PIPE if tried else subprocess.DEVNULL,
        bufsize=0,
        pass_fds=passed,
        cwd="/",
        env={"LANG": "C.UTF-8"},
    )


def _start_prepared(prepared: Prepared, control: int, users: int | None) -> subprocess.Popen[bytes]:
    """Start a fork server in a sandbox that sees what those of its forks see, but for students' files.

    It keeps the rights that entering another sandbox takes, and shares the namespace of processes: the kernel
    lets processes be forked only into one that lies below their own. Raises OSError and SandboxUnavailable.
    """
    root = os.geteuid() == 0
    arguments = [] if users is None else ["--userns", str(users), "--cap-add", "ALL"]
    arguments += ["--unshare-net", "--unshare-ipc", "--unshare-uts", "--new-session", "--clearenv"]
    for name, value in environment(SandboxSpec(prepared.argv, environ=dict(prepared.environ))).items():
        arguments += ["--setenv", name, value]
    arguments += [
        *filesystem_view.system(),
        *filesystem_view.devices(),
        *filesystem_view.writable(_PREPARED_MB),
    ]
    arguments += [
        *filesystem_view.mounts(prepared.mounts, as_other_user=root),
        "--chdir",
        "/box",
        "--remount-ro",
        "/",
    ]
    return subprocess.Popen(
        [shutil.which("bwrap") or "bwrap", *arguments, "--", *prepared.argv],
        stdin=control,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=() if users is None else (users,),
        cwd="/",
        env={"LANG": "C.UTF-8"},
    )


def _arguments(spec: SandboxSpec) -> list[str]:
    """Namespaces, the environment, the view of the file system."""
    root = os.geteuid() == 0
    arguments = [] if root else ["--unshare-user"]
    arguments += ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    arguments += ["--hostname", "sandbox", "--new-session", "--die-with-parent", "--clearenv"]
    for name, value in environment(spec).items():
        arguments += ["--setenv", name, value]
    arguments += [
        *filesystem_view.system(),
        *filesystem_view.kernel(),
        *filesystem_view.writable(spec.limits.disk_mb),
    ]
    arguments += [*filesystem_view.mounts(spec.mounts, as_other_user=root), "--chdir", "/box"]
    if any("\0" in argument for argument in arguments):
        raise SandboxUnavailable("A name for the sandbox has a character that no file name can have.")
    return arguments


def _inside(argv: Sequence[str], uid: int) -> list[str]:
    """The program, behind the one that takes root's rights away; without root, there are none."""
    if os.geteuid() != 0:
        return list(argv)
    user = [f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
    rights = ["--inh-caps=-all", "--ambient-caps=-all", "--bounding-set=-all", "--no-new-privs"]
    return ["setpriv", *user, *rights, "--", *argv]


def _allowed_uids() -> range:
    """Unused user numbers among those that exist here; in a container there may be only a few."""
    with suppress(OSError, ValueError):
        for line in Path("/proc/self/uid_map").read_text().splitlines():
            first, _, count = map(int, line.split())
            if first == 0 and 1 < count < _UNUSED_UIDS.stop:
                return range(max(count // 2, 1), count)
    return _UNUSED_UIDS
