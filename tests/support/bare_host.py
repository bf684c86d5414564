"""Bare Debian servers for one test: booted by systemd-nspawn, on a network of their own, gone afterwards.

Each host has an address, its own systemd, an sshd on port 22 and the user `debian`, who may use sudo. What a
host writes lies over the base of tests/support/bare_base.py. The network leads out through slirp4netns, so
that apt and pip find packages. Nothing of this machine's own services is reached or changed.
"""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.support import terminal
from tests.support.bare_base import CACHE, bare_base, configure_packages
from tests.support.networks import HOLD, held
from tests.support.services import ServiceMissing

SUBNET, OUT, NAMES = "10.0.0.", 2, 3
"""Addresses of the network, as in docs/; those of slirp4netns, which leads out and answers for names."""
BOOT_S, COMMAND_S = 120.0, 2400.0
PROGRAMS = (
    "systemd-nspawn",
    "debootstrap",
    "slirp4netns",
    "unshare",
    "nsenter",
    "setpriv",
    "ip",
    "ssh-keygen",
)
OPERATOR = "debian"
PARTS = ("top", "work", "merged")
WITH_THIS = ("setpriv", "--pdeathsig", "KILL")
"""What ends when the tests do, however they end."""
# cgroups without those of the systemd here; all processes in one space, so that none outlives the first
BOOT = """
mount -t overlay overlay -o "lowerdir=$BASE,upperdir=$TOP,workdir=$WORK" "$MERGED"
umount -R /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir "/sys/fs/cgroup$GROUP"
echo $$ > "/sys/fs/cgroup$GROUP/cgroup.procs"
mount --bind "/proc/$NETWORK/ns/net" "$CABLE"
exec unshare --pid --fork --kill-child --mount-proc \\
    systemd-nspawn --boot --quiet --register=no --keep-unit --console=read-only --resolv-conf=off \\
    --link-journal=no --directory="$MERGED" --hostname="$NAME" --machine="$NAME" \\
    --network-namespace-path="$CABLE" "$@"
"""
# without a second /proc that nothing hides parts of, no sandbox may mount its own
FIRST_USER = f"""
useradd --create-home --shell /bin/bash {OPERATOR}
mkdir -p /run/proc
mount -t proc proc /run/proc
"""
PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"


class CommandFailed(AssertionError):
    """A command on a host ended with something else than 0."""

    def __init__(self, host: str, script: str, code: int, output: str) -> None:
        super().__init__(f"{host}: exit status {code} of\n{script}\n{output[-4000:]}")
        self.code, self.output = code, output


@dataclass
class Host:
    """A booted server."""

    name: str
    address: str
    leader: int
    boot: subprocess.Popen[bytes]
    folder: Path
    group: str

    @property
    def files(self) -> Path:
        """What the host has written over the bare system."""
        return self.folder / "top"

    def run(self, script: str, user: str = OPERATOR, *, seconds: float = COMMAND_S) -> str:
        """Output of a script of bash as a user that signs in; CommandFailed where it ends badly."""
        done = self.try_run(script, user, seconds=seconds)
        if done.returncode:
            raise CommandFailed(self.name, script, done.returncode, done.stdout)
        return done.stdout

    def converse(
        self, script: str, answers: Mapping[str, str], user: str = OPERATOR, *, seconds: float = COMMAND_S
    ) -> str:
        """The same at a terminal; whoever is asked what contains a key is answered its value."""
        code, said = terminal.converse(self._command(script, user), answers, seconds)
        if code:
            raise CommandFailed(self.name, script, code, said)
        return said

    def try_run(
        self, script: str, user: str = OPERATOR, *, seconds: float = COMMAND_S
    ) -> subprocess.CompletedProcess[str]:
        """The same without a terminal, however it ends."""
        return subprocess.run(
            self._command(script, user),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )

    def write(self, path: str, content: str | bytes, *, user: str = OPERATOR, mode: int = 0o644) -> None:
        """A file on the host, with the folders that it needs."""
        data = content.encode() if isinstance(content, str) else content
        script = f'mkdir -p "$(dirname "{path}")"; (umask 077; cat > "{path}"); chmod {mode:o} "{path}"'
        subprocess.run(self._command(script, user), input=data, check=True, timeout=COMMAND_S)

    def put(self, source: Path, folder: str, *, user: str = OPERATOR) -> None:
        """What a repository here has committed, cloned there."""
        bundle = subprocess.run(
            ["git", "-C", str(source), "bundle", "create", "-q", "-", "HEAD"],
            stdout=subprocess.PIPE,
            check=True,
            timeout=COMMAND_S,
        )
        self.write(f"{folder}.bundle", bundle.stdout, user=user)
        pull = f'git -C "{folder}" pull -q "$(realpath "{folder}.bundle")" HEAD'
        self.run(f'git init -q -b main "{folder}"\n{pull}', user)

    def read(self, path: str) -> str:
        """A file on the host."""
        return self.run(f'cat "{path}"', "root")

    def close(self) -> None:
        """Switch it off, at once, and remove what it wrote."""
        with suppress(ProcessLookupError):
            os.kill(self.leader, signal.SIGKILL)
        try:
            self.boot.wait(30)
        except subprocess.TimeoutExpired:
            self.boot.kill()
            self.boot.wait(30)
        _remove_group(self.group)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _command(self, script: str, user: str) -> list[str]:
        inner = shlex.join(["bash", "-ec", script])
        login = ("runuser", "--login", user, "--shell", "/bin/bash", "--session-command", inner)
        return [*self._enter(), *login]

    def _enter(self) -> tuple[str, ...]:
        spaces = ("--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root", "--wd")
        clean = (
            "env",
            "-i",
            "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "LANG=C.UTF-8",
        )
        return ("nsenter", "--target", str(self.leader), *spaces, *clean)


@dataclass
class Hosts:
    """Makes hosts on one network."""

    switch: int
    stack: ExitStack
    made: list[Host] = field(default_factory=list)

    def add(self, name: str, number: int) -> Host:
        """A new bare host, booted; the address of the network's host number."""
        address = f"{SUBNET}{number}"
        network = self.stack.enter_context(held("unshare", "--net", *HOLD, installed_by="soak"))
        _plug(self.switch, network, len(self.made), address)
        folder = _own_folder(name)
        self.stack.callback(shutil.rmtree, folder, ignore_errors=True)
        shared = _prepare(folder / "top", name, address)
        host = _boot(name, address, network, folder, shared)
        self.stack.callback(host.close)
        self.made.append(host)
        _wait(host)
        return host


@contextmanager
def bare_hosts() -> Iterator[Hosts]:
    """A network without hosts; it and those that are added are gone when the context ends."""
    missing = [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]
    if missing:
        raise ServiceMissing(f"{', '.join(missing)}: missing here. Run scripts/bootstrap soak.")
    if os.geteuid() != 0:
        raise ServiceMissing("Bare hosts are booted by root only.")
    with ExitStack() as stack:
        switch = stack.enter_context(held("unshare", "--net", *HOLD, installed_by="soak"))
        _ip(switch, "link", "add", "hosts", "type", "bridge")
        _ip(switch, "link", "set", "hosts", "up")
        stack.enter_context(_way_out(switch))
        yield Hosts(switch, stack)


def _own_folder(name: str) -> Path:
    """A folder on a disk, as memory is too small; those of tests that were killed are removed."""
    folders = CACHE / "hosts"
    folders.mkdir(parents=True, exist_ok=True)
    for old in folders.iterdir():
        if not Path("/proc", old.name.split("-")[0]).exists():
            shutil.rmtree(old, ignore_errors=True)
            _remove_group(_group(old))
    folder = folders / f"{os.getpid()}-{secrets.token_hex(4)}-{name}"
    for part in PARTS:
        (folder / part).mkdir(mode=0o755, parents=True)
    (folder / "cable").touch()
    return folder


def _prepare(top: Path, name: str, address: str) -> list[Path]:
    """What an installer asks: name, network, the first user, where packages come from."""
    etc = top / "etc"
    (etc / "ssh").mkdir(parents=True)
    (etc / "systemd/system").mkdir(parents=True)
    (etc / "sudoers.d").mkdir(mode=0o750)
    subprocess.run(
        ["ssh-keygen", "-q", "-A", "-f", str(top)], check=True, stdout=subprocess.DEVNULL, timeout=60
    )
    (etc / "machine-id").write_text("")
    (etc / "hostname").write_text(f"{name}\n")
    (etc / "hosts").write_text(f"127.0.0.1 localhost\n{address} {name}\n")
    (etc / "resolv.conf").write_text(f"nameserver {SUBNET}{NAMES}\n")
    (etc / "sudoers.d" / OPERATOR).write_text(f"{OPERATOR} ALL=(ALL) NOPASSWD: ALL\n")
    return configure_packages(top)


def _boot(name: str, address: str, network: int, folder: Path, shared: list[Path]) -> Host:
    group = _group(folder)
    parts = {part.upper(): str(folder / part) for part in (*PARTS, "cable")}
    # /tmp on the disk, as Debian 12 has it
    parts["SYSTEMD_NSPAWN_TMPFS_TMP"] = "0"
    environment = {**parts, "BASE": str(bare_base()), "PATH": PATH, "NAME": name, "GROUP": group}
    binds = [f"--bind-ro={path}" for path in shared]
    with (folder / "console").open("wb") as console:
        boot = subprocess.Popen(
            [*WITH_THIS, "unshare", "--mount", "--propagation", "private", "sh", "-ec", BOOT, "boot", *binds],
            env={**environment, "NETWORK": str(network)},
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=console,
        )
    host = Host(name, address, 0, boot, folder, group)
    try:
        host.leader = _leader(boot, folder)
    except BaseException:
        boot.kill()
        boot.wait(30)
        _remove_group(group)
        raise
    return host


def _leader(boot: subprocess.Popen[bytes], folder: Path) -> int:
    """The process of the host that is number 1 there."""
    end = time.monotonic() + BOOT_S
    while boot.poll() is None and time.monotonic() < end:
        for child in _below(boot.pid):
            with suppress(OSError):
                if Path(f"/proc/{child}/comm").read_text().strip() == "systemd":
                    return child
        time.sleep(0.02)
    raise ServiceMissing(
        f"systemd-nspawn did not boot: {(folder / 'console').read_text(errors='replace')[-800:]}"
    )


def _below(pid: int) -> Iterator[int]:
    """The processes that a process has started, and those that they have."""
    with suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            yield int(child)
            yield from _below(int(child))


def _wait(host: Host) -> None:
    """Until everything is started, with the first user signed up."""
    end = time.monotonic() + BOOT_S
    state = ""
    while time.monotonic() < end and state not in ("running", "degraded"):
        asked = [*host._enter(), "systemctl", "is-system-running", "--wait"]
        state = subprocess.run(
            asked, capture_output=True, text=True, timeout=BOOT_S, check=False
        ).stdout.strip()
    if state != "running":
        failed = host.try_run("systemctl --failed --no-pager", "root").stdout
        raise ServiceMissing(f"{host.name} is {state or 'silent'}, not running:\n{failed}")
    host.run(FIRST_USER, "root")


# --- the network --------------------------------------------------------------------------------------


def _plug(switch: int, network: int, number: int, address: str) -> None:
    """A cable from a host to the switch, and the way out."""
    _ip(switch, "link", "add", f"host{number}", "type", "veth", "peer", "name", "eth0", "netns", str(network))
    _ip(switch, "link", "set", f"host{number}", "master", "hosts", "up")
    _ip(network, "link", "set", "lo", "up")
    _ip(network, "address", "add", f"{address}/24", "dev", "eth0")
    _ip(network, "link", "set", "eth0", "up")
    _ip(network, "route", "add", "default", "via", f"{SUBNET}{OUT}")


@contextmanager
def _way_out(switch: int) -> Iterator[None]:
    """slirp4netns on the switch: hosts reach what this machine reaches, but not this machine's loopback."""
    reading, writing = os.pipe()
    options = [f"--cidr={SUBNET}0/24", "--disable-host-loopback", "--mtu=1500", f"--ready-fd={writing}"]
    with subprocess.Popen(
        [*WITH_THIS, "slirp4netns", *options, str(switch), "way-out"],
        pass_fds=[writing],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PATH": PATH},
    ) as process:
        os.close(writing)
        try:
            ready = os.read(reading, 1)
            os.close(reading)
            if not ready:
                raise ServiceMissing("slirp4netns did not start: it needs /dev/net/tun.")
            _ip(switch, "link", "set", "way-out", "master", "hosts", "up")
            yield
        finally:
            process.kill()


def _ip(network: int, *words: str) -> None:
    """The command `ip` in a network."""
    command = ["nsenter", "--target", str(network), "--net", "ip", *words]
    done = subprocess.run(
        command, env={**os.environ, "PATH": PATH}, capture_output=True, text=True, timeout=60, check=False
    )
    if done.returncode:
        raise ServiceMissing(f"ip {' '.join(words)}: {done.stderr.strip()}. Run scripts/bootstrap soak.")


# --- groups of processes ------------------------------------------------------------------------------


def _group(folder: Path) -> str:
    """The group of a host's processes, below that of this one, in cgroups of version 2."""
    line = next(line for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::"))
    return f"{line.removeprefix('0::').rstrip('/')}/grader-{folder.name}"


def _remove_group(group: str) -> None:
    """Remove a group and those below, wherever version 2 is mounted."""
    for mount in ("/sys/fs/cgroup/unified", "/sys/fs/cgroup"):
        top = Path(mount + group)
        if (Path(mount) / "cgroup.controllers").exists() and top.is_dir():
            for below in sorted(top.rglob("*/"), reverse=True):
                with suppress(OSError):
                    below.rmdir()
            with suppress(OSError):
                top.rmdir()
