"""What bubblewrap alone owes: its limits are ours to keep, and it also works without root."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import select
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from grading.domain.errors import SandboxUnavailable
from tests.integration.sandbox.sandboxed_program import LIMITS, ended, puppet, tell, written
from workers.sandbox.backends import open_backend, seccomp
from workers.sandbox.backends.base import Mount, SandboxSpec
from workers.sandbox.backends.bubblewrap import Bubblewrap


@pytest.fixture(scope="module")
def sandbox() -> Bubblewrap:
    found = open_backend("auto")
    assert isinstance(found, Bubblewrap), found.problem()
    return found


pytestmark = pytest.mark.usefixtures("one_box_at_a_time")
FORK = "for n in range({many}):\n if os.fork() == 0:\n  {child}\n  import time; time.sleep(100)\nos.wait()"
BREACHES = {
    "many processes": (FORK.format(many=30, child="pass"), "processes", "24 processes"),
    "many threads": (
        "import threading, time\n"
        "for n in range(30): threading.Thread(target=time.sleep, args=(100,)).start()\ntime.sleep(100)",
        "processes",
        "24 processes",
    ),
    "fork bomb": ("while True:\n try: os.fork()\n except OSError: pass", "processes", "24 processes"),
    "memory together": (FORK.format(many=8, child="x = b'x' * (60 << 20)"), "memory", "256 MiB"),
    "memory alone": ("x = b'x' * (400 << 20)\nimport time; time.sleep(100)", "memory", "256 MiB"),
    "many files": ("n = 0\nwhile True:\n n += 1; open(f'/tmp/{n}', 'w').close()", "output", "20,000 files"),
}


@pytest.mark.parametrize("name", BREACHES)
def test_what_is_over_its_limits_ends(sandbox: Bubblewrap, name: str):
    code, end, word = BREACHES[name]
    ending = ended(sandbox, code)
    assert ending.end == end
    assert word in ending.reason


def test_memory_that_forks_share_counts_once(sandbox: Bubblewrap):
    code = """
        x = b'x' * (100 << 20)
        for n in range(8):
            if os.fork() == 0:
                import time; time.sleep(0.3); os._exit(0)
        for n in range(8): os.wait()
        say(survived=True)
    """
    with sandbox.open(puppet()) as session:
        session.send({"run": textwrap.dedent(code)})
        assert session.receive(15) == {"survived": True}


SYSTEM_CALLS = """
import ctypes, errno, fcntl, mmap, socket
libc = ctypes.CDLL(None, use_errno=True)
def fails(name, *arguments):
    ctypes.set_errno(0)
    return getattr(libc, name)(*arguments) == -1 and ctypes.get_errno() == errno.EPERM
calls = {
    "ptrace": (0, 0, 0, 0), "unshare": (0x10000000,), "setns": (0, 0), "umount2": (b"/tmp", 2),
    "mount": (b"x", b"/tmp", b"tmpfs", 0, 0), "chroot": (b"/tmp",), "memfd_create": (b"x", 0),
    "shmget": (0, 4096, 0o1600), "msgget": (0, 0o1600), "personality": (0x40000,), "sethostname": (b"x", 1),
    "process_vm_readv": (1, 0, 0, 0, 0, 0), "reboot": (0,), "swapon": (b"/tmp/x", 0), "acct": (b"/tmp/x",),
    "fanotify_init": (0, 0), "name_to_handle_at": (0, b"x", 0, 0, 0), "adjtimex": (bytes(512),),
}
value = [name for name, arguments in calls.items() if hasattr(libc, name) and not fails(name, *arguments)]
for family in (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK, socket.AF_PACKET, socket.AF_VSOCK):
    try: value.append(repr(socket.socket(family, socket.SOCK_DGRAM)))
    except PermissionError: pass
for call in (lambda: fcntl.ioctl(0, 0x5412, b"x"), lambda: mmap.mmap(-1, 4096)):
    try: value.append(repr(call()))
    except PermissionError: pass
if libc.personality(ctypes.c_ulong(0xFFFFFFFF)) != 0: value.append("personality cannot be asked")
socket.socketpair()
"""


def test_system_calls_that_nobody_needs_are_refused(sandbox: Bubblewrap):
    assert seccomp.program()
    assert sandbox.notes == ()
    with sandbox.open(puppet()) as session:
        assert tell(session, SYSTEM_CALLS) == []


SHARED_QUOTAS = (
    *("io_setup", "io_submit", "io_uring_setup", "inotify_init1", "inotify_add_watch", "epoll_create1"),
    *("mq_open", "shmget", "semget", "msgget", "add_key", "keyctl", "bpf", "perf_event_open", "seccomp"),
    *("userfaultfd", "memfd_create", "fanotify_init"),
)
"""System calls that take from what the whole computer, or all processes of a user, have once."""


def test_quotas_that_the_computer_or_its_user_shares_cannot_be_used_up(sandbox: Bubblewrap):
    library = ctypes.CDLL(seccomp.LIBRARY)
    numbers = {name: library.seccomp_syscall_resolve_name(name.encode()) for name in SHARED_QUOTAS}
    assert min(numbers.values()) >= 0
    code = f"""
import ctypes, resource, socket
libc = ctypes.CDLL(None, use_errno=True)
value = {{}}
for name, number in {numbers!r}.items():
    given = libc.syscall(number, 1, 0, 0, 0, 0, 0)
    value[name] = ctypes.get_errno() if given == -1 else "let through"
ends = socket.socketpair()
for option in (7, 26, 50, 51, 52):
    try: ends[0].setsockopt(socket.SOL_SOCKET, option, bytes(16))
    except OSError as error: value[option] = error.errno
libc.prctl(22, 2, 0, 0, 0)
value["prctl"] = ctypes.get_errno()
value["limits"] = [resource.getrlimit(n)[1] for n in (resource.RLIMIT_SIGPENDING, resource.RLIMIT_RTPRIO)]
"""
    with sandbox.open(puppet()) as session:
        got = tell(session, code)
    assert got.pop("limits") == [256, 0]
    assert set(got.values()) == {errno.EPERM}, got
    assert set(got) == {*SHARED_QUOTAS, "prctl", *map(str, (7, 26, 50, 51, 52))}


def test_programs_that_wait_for_many_things_do_without_epoll(sandbox: Bubblewrap):
    code = """
        import asyncio, selectors
        from concurrent.futures import ThreadPoolExecutor
        async def half(x):
            await asyncio.sleep(0.01)
            return x / 2
        async def both(): return await asyncio.gather(half(4), half(6))
        with ThreadPoolExecutor(2) as threads:
            value = [asyncio.run(both()), list(threads.map(abs, (-1, -2)))]
    """
    with sandbox.open(puppet()) as session:
        assert tell(session, textwrap.dedent(code)) == [[2, 3], [1, 2]]


def test_without_libseccomp_it_goes_on_and_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(seccomp, "program", lambda: b"")
    found = Bubblewrap()
    assert found.problem() == ""
    assert "apt-get install libseccomp2" in found.notes[0]
    with found.open(puppet()) as session:
        assert tell(session, "value = 1") == 1


def test_little_of_the_machine_is_seen(sandbox: Bubblewrap):
    with sandbox.open(puppet()) as session:
        assert tell(session, "value = sorted(os.listdir('/'))") == sorted(
            {"bin", "box", "dev", "etc", "proc", "tmp", "usr"}
            | {name for name in ("lib", "lib32", "lib64", "libx32", "sbin") if Path("/", name).exists()}
        )
        assert tell(session, "value = os.listdir('/proc/sys')") == []
        assert {"passwd", "group"} <= set(tell(session, "value = os.listdir('/etc')"))
        assert tell(session, "value = open('/etc/passwd').read().count('\\n')") == 1
        assert set(tell(session, "value = os.listdir('/dev')")) == {
            *("null", "urandom", "random", "shm", "fd", "stdin", "stdout", "stderr")
        }
        for path in ("/proc/kcore", "/proc/sysrq-trigger", "/proc/1/mem", "/proc/keys", "/proc/cmdline"):
            assert (
                "Error" in str(tell(session, f"value = len(open({path!r}, 'rb').read(8))"))
                or path == "/proc/1/mem"
            )
        assert tell(session, "value = sorted(map(int, os.listdir('/proc/self/fd')))") == [0, 1, 2, 3]
        assert str(Path(__file__).parents[3]) not in tell(session, "value = open('/proc/1/cmdline').read()")


def test_each_box_has_a_user_of_its_own_where_we_are_root(sandbox: Bubblewrap):
    with sandbox.open(puppet()) as one, sandbox.open(puppet()) as other:
        users = {tell(session, "value = os.getuid()") for session in (one, other)}
    assert len(users) == 2 if os.geteuid() == 0 else users == {os.geteuid()}


def test_files_that_the_box_could_not_read_are_named(sandbox: Bubblewrap, tmp_path: Path):
    source = written(tmp_path, "secret", "x")
    source.chmod(0o600)
    if os.geteuid() == 0:
        with pytest.raises(SandboxUnavailable, match=r"chmod -R o\+rX"):
            sandbox.open(puppet(LIMITS, Mount(source, "/box/secret")))
    else:
        with sandbox.open(puppet(LIMITS, Mount(source, "/box/secret"))) as session:
            assert tell(session, "value = open('/box/secret').read()") == "x"


def test_a_program_that_is_not_there_is_nobodys_fault(sandbox: Bubblewrap):
    with pytest.raises(SandboxUnavailable, match="/usr/bin/no-such-program is not there"):
        sandbox.open(SandboxSpec(("/usr/bin/no-such-program",)))


def test_what_bubblewrap_refuses_is_said_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    sandbox = Bubblewrap()
    assert "No permissions to create new namespace" in sandbox.problem()
    with pytest.raises(SandboxUnavailable, match="No permissions"):
        sandbox.open(puppet())
    assert open_backend("auto").name == "none"
    assert open_backend("auto", engine="docker", image="x").name == "container"


def test_without_bubblewrap_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "apt-get install bubblewrap util-linux" in Bubblewrap().problem()


# --- in processes of their own -------------------------------------------------------------------------

ORPHAN = """
from tests.integration.sandbox.sandboxed_program import puppet
from workers.sandbox.backends.bubblewrap import Bubblewrap
session = Bubblewrap().open(puppet())
session.send({"run": "say(up=1)\\nwhile True: pass"})
session.receive(15)
print(session.root_pid, flush=True)
input()
"""


def test_a_worker_that_is_killed_takes_its_boxes_along():
    root = str(Path(__file__).parents[3])
    with subprocess.Popen(
        [sys.executable, "-c", ORPHAN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root
    ) as worker:
        assert worker.stdout is not None
        inside = os.pidfd_open(int(worker.stdout.readline()))
        try:
            worker.send_signal(signal.SIGKILL)
            assert select.select([inside], [], [], 10)[0]
        finally:
            os.close(inside)


ORDINARY = """
import encodings.idna, json, os, sys
from tests.integration.sandbox import sandboxed_program as inside, test_bubblewrap as here
from workers.sandbox.backends.base import Mount
from workers.sandbox.backends.bubblewrap import Bubblewrap
if os.geteuid() == 0:
    os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
sandbox = Bubblewrap()
found = {"problem": sandbox.problem()}
with sandbox.open(inside.puppet(inside.LIMITS, Mount(here.Path(sys.argv[1]), "/box/data/x.csv"))) as session:
    found["uid"] = inside.tell(session, "value = os.getuid()")
    found["read"] = inside.tell(session, "value = open('/box/data/x.csv').read()")
    found["write"] = inside.tell(session, "value = open('/box/data/mine', 'w').write('x')")
    found["calls"] = inside.tell(session, here.SYSTEM_CALLS)
    places = "('/', '/dev', '/etc', '/usr', '/proc/sys', '/usr/local/etc', '/box/data/x.csv')"
    outside = f"value = [p for p in {places} if os.access(p, os.W_OK)]"
    found["outside"] = inside.tell(session, outside)
    found["environment"] = inside.tell(session, "value = 'BAIT' in open('/proc/1/environ').read()")
    session.send({"do": "end"})
    session.receive(10)
    found["end"] = session.close().end
for name in ("fork bomb", "memory together", "many files"):
    found[name] = inside.ended(sandbox, here.BREACHES[name][0]).end
print(json.dumps(found))
"""


def test_it_works_for_an_ordinary_user():
    folder = Path("/var/tmp")  # pytest's own folders are closed to others
    source = written(folder, f"grader-sandbox-test-{os.getpid()}.csv", "1,2\n")
    try:
        done = subprocess.run(
            [sys.executable, "-c", ORDINARY, str(source)],
            cwd=Path(__file__).parents[3],
            env={**os.environ, "BAIT": "x"},
            capture_output=True,
            timeout=60,
            text=True,
        )
    finally:
        source.unlink()
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "problem": "",
        "uid": 65534 if os.geteuid() == 0 else os.geteuid(),
        "read": "1,2\n",
        "write": 1,
        "calls": [],
        "outside": [],
        "environment": False,
        "end": "finished",
        "fork bomb": "processes",
        "memory together": "memory",
        "many files": "output",
    }
