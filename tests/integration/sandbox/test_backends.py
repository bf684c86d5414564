"""What every backend owes: a private place, no way out, and an honest end. Played with real sandboxes."""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from grading.domain.errors import SandboxUnavailable
from tests.integration.sandbox import container_engine
from tests.integration.sandbox.sandboxed_program import LIMITS, ended, puppet, tell, written
from tests.support.system import until
from workers.sandbox.backends import open_backend
from workers.sandbox.backends.base import Backend, Mount, SandboxSpec

pytestmark = pytest.mark.usefixtures("one_box_at_a_time")
# a real engine, where one is at hand: SANDBOX_TEST_ENGINE and SANDBOX_TEST_IMAGE
KINDS = ["bubblewrap", "container"] + (["engine"] if "SANDBOX_TEST_ENGINE" in os.environ else [])
SOON_S = 20.0
"""What is not stopped goes on for longer."""


def stand_in(folder: Path) -> Backend:
    """The container backend on an engine whose containers are sandboxes of bubblewrap."""
    (folder / "names").mkdir()
    engine = folder / "engine"
    engine.write_text(
        f'#!/bin/sh\nSTAND_IN_NAMES={folder}/names exec {sys.executable} {container_engine.__file__} "$@"\n'
    )
    engine.chmod(0o755)
    return open_backend("container", engine=str(engine), image=container_engine.IMAGE)


@pytest.fixture(scope="module", params=KINDS)
def sandbox(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Backend:
    if request.param == "engine":
        found = open_backend(
            "container", engine=os.environ["SANDBOX_TEST_ENGINE"], image=os.environ["SANDBOX_TEST_IMAGE"]
        )
    elif request.param == "container":
        found = stand_in(tmp_path_factory.mktemp("engine"))
    else:
        found = open_backend("bubblewrap")
    assert found.problem() == ""
    return found


@pytest.fixture
def listener() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


class TestAPrivatePlace:
    def test_a_talk_and_its_end(self, sandbox: Backend):
        with sandbox.open(puppet()) as session:
            assert tell(session, "value = 6 * 7") == 42
            assert tell(session, "value = 'ä\\u2028\\n'") == "ä\u2028\n"
            session.send({"do": "end"})
            assert session.receive(10) is None
            assert session.close().end == "finished"
        assert session.close().reason == ""

    def test_leaving_early_ends_it(self, sandbox: Backend):
        with sandbox.open(puppet()) as session:
            session.send({"run": "import time; time.sleep(1000)"})
        assert session.close().end == "finished"

    def test_it_is_nobody_in_an_empty_folder(self, sandbox: Backend):
        with sandbox.open(puppet()) as session:
            assert tell(session, "value = [os.getcwd(), os.listdir(), os.listdir('/tmp')]") == [
                "/box",
                [],
                [],
            ]
            assert tell(session, "value = os.getuid()") != 0 or os.geteuid() != 0
            capabilities = "value = [l.split()[1] for l in open('/proc/self/status') if l[:3] == 'Cap']"
            assert set(tell(session, capabilities)) == {"0" * 16}
            assert tell(session, "value = 'NoNewPrivs:\\t1' in open('/proc/self/status').read()")

    def test_only_its_own_folders_can_be_written(self, sandbox: Backend):
        with sandbox.open(puppet()) as session:
            for folder in ("/box", "/tmp", "/dev/shm"):
                assert tell(session, f"value = open('{folder}/mine', 'w').write('x')") == 1
            for folder in ("/", "/usr", "/usr/bin", "/etc", "/dev", "/proc", "/proc/1"):
                assert "Error" in str(tell(session, f"value = open('{folder}/mine', 'w').write('x')"))

    def test_files_are_given_read_only(self, sandbox: Backend, tmp_path: Path):
        source = written(tmp_path, 'a,b "c".csv', "1,2\n")
        targets = ("/data/a.csv", "/box/data/a.csv", "/box/a b, c.csv")
        with sandbox.open(puppet(LIMITS, *(Mount(source, target) for target in targets))) as session:
            for target in targets:
                assert tell(session, f"value = open({target!r}).read()") == "1,2\n"
                assert "Error" in tell(session, f"value = open({target!r}, 'w').write('x')")
                assert "Error" in str(tell(session, f"value = os.chmod({target!r}, 0o777)"))
                assert "Error" in str(tell(session, f"value = os.unlink({target!r})"))
            assert tell(session, "value = open('/box/mine.csv', 'w').write('x')") == 1
        assert source.read_text() == "1,2\n"

    def test_the_environment_is_its_own(self, sandbox: Backend, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv("GRADER_SECRET_KEY", "bait")
        with sandbox.open(puppet(LIMITS, OWN="1")) as session:
            seen = tell(session, "value = dict(os.environ)")
            assert seen["HOME"] == "/box"
            assert seen["OWN"] == "1"
            assert not [name for name in seen if name.startswith("GRADER")]
            everywhere = (
                "import glob; value = []\n"
                "for path in glob.glob('/proc/[0-9]*/environ'):\n"
                "    try: value.append('bait' in open(path).read())\n"
                "    except OSError: pass\n"
            )
            assert True not in tell(session, everywhere)

    def test_there_is_no_network(self, sandbox: Backend, listener: int):
        with sandbox.open(puppet()) as session:
            connect = f"import socket; socket.create_connection(('127.0.0.1', {listener}), 2)"
            assert "Error" in str(tell(session, connect))
            assert "Error" in str(
                tell(session, "import socket; socket.create_connection(('192.0.2.1', 80), 2)")
            )
            assert "rror" in str(tell(session, "import socket; socket.getaddrinfo('example.org', 80)"))

    def test_nobody_else_is_seen(self, sandbox: Backend):
        with sandbox.open(puppet()) as one, sandbox.open(puppet()) as other:
            assert tell(one, "open('/tmp/secret', 'w').write('x')") is None
            assert tell(other, "value = os.path.exists('/tmp/secret')") is False
            assert len(tell(other, "value = [p for p in os.listdir('/proc') if p.isdigit()]")) < 6
            assert "Error" in str(tell(other, f"os.kill({os.getpid()}, 0)"))

    def test_what_does_not_exist_cannot_be_given(self, sandbox: Backend, tmp_path: Path):
        with pytest.raises(SandboxUnavailable, match="not there"):
            sandbox.open(puppet(LIMITS, Mount(tmp_path / "gone", "/box/x")))

    def test_links_are_not_followed(self, sandbox: Backend, tmp_path: Path):
        link = tmp_path / "link"
        link.symlink_to("/etc/hostname")
        with pytest.raises(SandboxUnavailable, match="is a link"):
            sandbox.open(puppet(LIMITS, Mount(link, "/box/x")))

    @pytest.mark.parametrize(
        "target", ["/etc/passwd", "/usr/bin/env", "/box", "/", "x", "/box/../etc/x", "/proc/1"]
    )
    def test_the_system_cannot_be_covered(self, sandbox: Backend, tmp_path: Path, target: str):
        with pytest.raises(SandboxUnavailable, match="Nothing can be placed"):
            sandbox.open(puppet(LIMITS, Mount(written(tmp_path, "x", ""), target)))


ONCE = pytest.mark.parametrize(
    "sandbox",
    [KINDS[0], *(pytest.param(kind, marks=pytest.mark.soak) for kind in KINDS[1:])],
    indirect=True,
)
"""For what the conversation decides, which is the same code for all: `make soak` holds it with each."""


class TestHowItEnds:
    @pytest.mark.parametrize(
        ("code", "word"),
        [
            ("os._exit(0)", "before its time"),
            ("os._exit(7)", "exit code 7"),
            ("os.kill(os.getpid(), 11)", "SIGSEGV"),
            ("os.kill(os.getpid(), 15)", "SIGTERM"),
        ],
    )
    def test_by_itself(self, sandbox: Backend, code: str, word: str):
        ending = ended(sandbox, code)
        assert ending.end == "left"
        assert word in ending.reason

    def test_killing_all_it_sees_ends_only_itself(self, sandbox: Backend):
        with sandbox.open(puppet()) as other:
            assert ended(sandbox, KILLS).end in ("left", "memory")
            assert tell(other, "value = 1") == 1

    @ONCE
    @pytest.mark.parametrize(
        "code",
        [
            "while True: pass",
            "import signal\nfor n in (1, 2, 3, 15): signal.signal(n, signal.SIG_IGN)\nwhile True: pass",
            "os.kill(os.getpid(), 19)",
            "os.close(1); os.close(2); import time; time.sleep(1000)",
            "os.kill(1, 19); import time; time.sleep(1000)",
        ],
    )
    def test_silence_is_not_waited_for(self, sandbox: Backend, code: str):
        began = time.monotonic()
        ending = ended(sandbox, code, timeout_s=0.4)
        assert (ending.end, "no heartbeat for 0.4 s" in ending.reason) == ("too long", True)
        assert time.monotonic() - began < SOON_S

    def test_the_time_in_all(self, sandbox: Backend):
        began = time.monotonic()
        limits = LIMITS.model_copy(update={"seconds": 1.5})
        ending = ended(sandbox, "while True: say(busy=1); import time; time.sleep(0.1)", limits)
        assert ending.end == "too long"
        assert "1.5 s" in ending.reason
        assert 1.4 < time.monotonic() - began < SOON_S

    @ONCE
    @pytest.mark.parametrize(
        "code",
        [
            "while True: os.write(1, b'x' * 65536)",
            "while True: os.write(1, b'{}' * 4000 + b'\\n')",
            "while True: os.write(1, b'\\n' * 65536)",
        ],
    )
    def test_endless_output(self, sandbox: Backend, code: str):
        ending = ended(sandbox, code)
        assert (ending.end, "more than it may" in ending.reason) == ("output", True)

    @ONCE
    def test_what_is_no_message_is_left_out(self, sandbox: Backend):
        with sandbox.open(puppet()) as session:
            session.send({"run": NOISE})
            assert session.receive(10) == {"good": 1}
            assert session.receive(10) == {"good": 2}

    @ONCE
    def test_what_was_said_before_the_end_is_heard(self, sandbox: Backend):
        with sandbox.open(puppet()) as session:
            session.send({"run": "say(good=1); say(good=2); os._exit(0)"})
            assert session.receive(10) == {"good": 1}
            assert session.receive(10) == {"good": 2}
            assert session.receive(10) is None

    @ONCE
    def test_a_program_that_does_not_listen(self, sandbox: Backend):
        with sandbox.open(puppet()) as session:
            session.send({"run": "os._exit(0)"})
            for _ in range(4):
                session.send({"text": "x" * 1_000_000})
            assert session.receive(10) is None
            session.send({"run": ""})
            assert session.close().end == "left"
        session.send({"run": ""})

    @ONCE
    def test_both_talk_at_once(self, sandbox: Backend):
        with sandbox.open(puppet()) as session:
            session.send({"run": "say(text='x' * 3_000_000)"})
            session.send({"run": "value = len('" + "y" * 3_000_000 + "')"})
            assert len((session.receive(15) or {})["text"]) == 3_000_000
            assert session.receive(15) == {"value": None}
            assert session.receive(15) == {"value": 3_000_000}

    def test_a_disk_that_is_full(self, sandbox: Backend):
        with sandbox.open(puppet()) as session:
            fill = "value = 0\nfor n in range(4): open(f'/box/{n}', 'wb').write(bytes(5 << 20))"
            assert "No space left" in tell(session, fill)
            assert "too large" in tell(
                session, "os.unlink('/box/0'); os.posix_fallocate(os.open('/box/big', 66), 0, 9 << 20)"
            )

    def test_one_process_with_too_much_memory(self, sandbox: Backend):
        hog = "x = []\nwhile True: x.append(b'x' * (1 << 20))"
        with sandbox.open(puppet()) as session:
            session.send({"run": hog})
            answer = session.receive(15)
            assert answer is None or "MemoryError" in answer["error"]
            assert answer is not None or session.close().end == "memory"

    def test_daemons_end_with_it(self, sandbox: Backend):
        daemon = (
            "if os.fork() == 0:\n os.setsid()\n if os.fork() == 0:\n  while True: pass\n os._exit(0)\n"
            "os.wait(); value = 'daemon'"
        )
        with sandbox.open(puppet()) as session:
            assert tell(session, daemon) == "daemon"
            before = time.monotonic()
            session.close()
            assert time.monotonic() - before < SOON_S

    def test_a_fork_bomb_costs_nobody_else(self, sandbox: Backend):
        bomb = "while True:\n try: os.fork()\n except OSError: pass"
        limits = LIMITS.model_copy(update={"seconds": 1.5})
        patient = LIMITS.model_copy(update={"seconds": 90})  # until a busy computer has buried all of them
        before = of_nobody()
        with sandbox.open(puppet(patient)) as other:
            # the stand-in counts a user's processes over all sandboxes: one that still starts would get none
            assert tell(other, "value = 0", 60) == 0
            assert ended(sandbox, bomb, limits).end in ("processes", "too long")
            assert tell(other, "value = 1", 60) == 1, other.close()
        # until they are buried they count for the sandboxes of the next test
        until(lambda: of_nobody() <= before, 90, "the processes of the bomb are gone")


def of_nobody() -> int:
    """Processes of the user that the stand-in runs sandboxes as, zombies included."""
    count = 0
    for status in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError):  # one that has just ended
            count += "\nUid:\t65534\t" in status.read_text()
    return count


KILLS = """
for pid in (-1, 1, os.getppid(), os.getpid()):
    try: os.kill(pid, 9)
    except OSError: pass
"""
NOISE = r"""
for text in (b'', b'\xff\xfe\x00', b'[1]', b'"x"', b'{"a"', b'[' * 90_000, b'{"a":' * 90_000, b'9' * 9_000):
    os.write(1, text + b'\n')
os.write(1, b'{"good": 1}\r\n\x00\n{"good": 2}\n')
"""


class TestManyBoxes:
    def test_at_the_same_time_from_many_threads(self, sandbox: Backend):
        def one(number: int) -> object:
            with sandbox.open(puppet()) as session:
                return tell(session, f"value = {number}")

        count = 16 if sandbox.name == "bubblewrap" else 8
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(one, range(count))) == list(range(count))

    def test_nothing_is_left_behind(self, sandbox: Backend):
        assert ended(sandbox, "os._exit(0)").end == "left"  # what is made once is made
        before = settled()
        for number in range(60 if sandbox.name == "bubblewrap" else 5):
            with sandbox.open(SandboxSpec(("/bin/cat",), limits=LIMITS)) as session:
                session.send({"n": number})
                assert session.receive(10) == {"n": number}
        assert settled() == before


def settled() -> tuple[int, int, list[str]]:
    """What is held when the watcher has found nothing more to watch."""
    for thread in threading.enumerate():
        if thread.name == "sandbox-watcher":
            thread.join(60)
    return held()


def held() -> tuple[int, int, list[str]]:
    """Open files, threads and children of this process."""
    children = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError):  # a thread that has just ended
            children += (task / "children").read_text().split()
    return len(os.listdir("/proc/self/fd")), threading.active_count(), sorted(children)
