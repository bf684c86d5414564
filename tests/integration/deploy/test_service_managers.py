"""Services as their managers take them: what is run, what is told to systemd and launchd, who is stopped."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from cli.deploy import unit_command
from cli.deploy.remote import service
from cli.deploy.unit_command import PARTS
from cli.deploy.units import env_line
from cli.settings import Settings
from tests.support.system import until
from tests.unit.deploy.test_service_units import ODD, described


@pytest.mark.parametrize("part", ["odd", *PARTS, "dgx-spark-1"])
def test_systemd_accepts_the_unit(part: str, tmp_path: Path) -> None:
    one = (
        described(tmp_path, system=True, writes=(PurePosixPath(tmp_path, f"it's {ODD}"),))
        if part == "odd"
        else unit_command.described(Settings(Path("config.toml")), part, system=True)
    )
    text = one.rendered("systemd")
    assert text.count("[Service]") == 1
    program = shutil.which("systemd-analyze")
    if program is None:  # macOS; the unit's fields are checked in the unit tests
        return
    path = tmp_path / f"grader-{one.name}.service"
    path.write_text(text)
    verified = subprocess.run(
        [program, "verify", str(path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert path.stem not in verified.stderr, verified.stderr
    if one.system:
        assert exposure(program, path) <= 3.0


def exposure(program: str, path: Path) -> float:
    """What `systemd-analyze security` says of a unit: 0 is shut in, 10 may do everything."""
    said = subprocess.run(
        [program, "security", "--offline=true", str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return float(said.stdout.partition("Overall exposure level")[2].split(":")[1].split()[0])


def test_the_wrapper_reads_secrets_and_becomes_the_command(tmp_path: Path) -> None:
    secret = 'rediss://lab-1:p$a`s"s%27@10.0.0.5:6379/0?a=b&c=#d'
    (tmp_path / "grader.env").write_text(env_line("GRADER_REDIS_URL", secret))
    show = "import os, sys; print(os.getpid(), os.environ['GRADER_REDIS_URL'], sys.argv[1])"
    one = described(tmp_path, command=(sys.executable, "-c", show, ODD))
    argv = json.loads(one.rendered("supervised"))["command"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        said, _ = process.communicate(timeout=60)
    assert said == f"{process.pid} {secret} {ODD}\n"


# --- what the managers are told -----------------------------------------------------------------------


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Programs of the system that write down how they were called; nobody is root here."""
    log = tmp_path / "calls"
    log.touch()
    script = f"""#!/bin/sh
echo "${{0##*/}} $*" >> {log}
case "${{0##*/}} $*" in
    *"--user show "*) [ ! -e {tmp_path}/nobody ] || {{ echo "Failed to connect to bus" >&2; exit 1; }}
        printf 'LoadState=loaded\\nActiveState=active\\nSubState=running\\n'
        printf 'MainPID=7\\nNRestarts=2\\n' ;;
    *" bootstrap gui/"*) echo "Domain does not support specified action" >&2; exit 125 ;;
    *" print user/"*) [ -e {tmp_path}/loaded ] &&
        printf '\\tstate = running\\n\\tpid = 9\\n\\tends = {{\\n\\t\\tstate = active\\n' ;;
    *" bootstrap user/"*) touch {tmp_path}/loaded ;;
    *" bootout "*) rm {tmp_path}/loaded ;;
    "loginctl show-user "*) [ -e {tmp_path}/forbidden ] && echo Linger=no ;;
    journalctl*) echo "the last line" ;;
esac
"""
    (tmp_path / "bin").mkdir()
    for name in ("systemctl", "loginctl", "journalctl", "launchctl"):
        (tmp_path / "bin" / name).write_text(script)
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LOGNAME", "ada")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/501")
    monkeypatch.setattr(os, "getuid", lambda: 501)
    return log


def test_systemd_of_a_user(tools: Path, tmp_path: Path) -> None:
    one = service.Systemd(tmp_path / "grader", "worker-lab-1", 120)
    assert one.install(b"[Unit]\n")
    assert not one.install(b"[Unit]\n")
    calls = [line for line in tools.read_text().splitlines() if "show-user" not in line]
    assert calls == [
        "systemctl --user daemon-reload",
        "systemctl --user enable grader-worker-lab-1.service",
        "systemctl --user enable grader-worker-lab-1.service",
    ]
    one.ready()
    assert "loginctl enable-linger" in tools.read_text()
    one.start()
    one.stop()
    assert one.state() == {"installed": True, "running": True, "pid": 7, "detail": "running, 2 restarts"}
    assert one.log(15) == "the last line\n"
    assert " ".join(one.shows(100, follow=True)) == (
        "journalctl --user-unit grader-worker-lab-1.service --lines=100 --no-pager --output=cat --follow"
    )
    unit = tmp_path / ".config/systemd/user/grader-worker-lab-1.service"
    assert unit.read_bytes() == b"[Unit]\n"
    assert "systemctl --user start grader-worker-lab-1.service\n" in tools.read_text()
    assert "systemctl --user stop grader-worker-lab-1.service\n" in tools.read_text()
    one.remove()
    assert tools.read_text().splitlines()[-3:] == [
        "systemctl --user stop grader-worker-lab-1.service",
        "systemctl --user disable grader-worker-lab-1.service",
        "systemctl --user daemon-reload",
    ]
    assert not unit.exists()
    (tmp_path / "nobody").touch()
    with pytest.raises(service.Refused, match="run there once: sudo loginctl enable-linger ada"):
        one.state()
    (tmp_path / "forbidden").touch()
    with pytest.raises(service.Refused, match="sudo loginctl enable-linger"):
        one.ready()


def test_launchd_of_a_user_without_a_screen(tools: Path, tmp_path: Path) -> None:
    one = service.Launchd(tmp_path / "grader", "worker-lab-1", 120)
    assert one.install(described(tmp_path).rendered("launchd").encode())
    assert one.state()["running"] is False
    one.start()
    assert one.state() == {"installed": True, "running": True, "pid": 9, "detail": "user/501"}
    one.start()  # again: nothing happens
    one.logfile.touch()
    assert one.shows(100, follow=True) == ["tail", "-n", "100", "-F", str(one.logfile)]
    one.remove()
    assert one.state()["running"] is False
    assert one.state()["installed"] is False
    plist = tmp_path / "Library/LaunchAgents/grader.worker-lab-1.plist"
    calls = [line for line in tools.read_text().splitlines() if " print " not in line]
    assert calls == [
        f"launchctl bootstrap gui/501 {plist}",
        f"launchctl bootstrap user/501 {plist}",
        "launchctl bootout user/501/grader.worker-lab-1",
    ]


def there(folder: Path, action: str, stop_s: float = 10, stdin: str = "") -> dict[str, Any]:
    """What a machine answers, in a process of its own as over SSH."""
    words = [str(folder), action, "supervised", "worker-lab-1", str(stop_s)]
    said = subprocess.run(
        [sys.executable, "-I", "-c", Path(service.__file__).read_text(), *words],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    answer: dict[str, Any] = json.loads(said.stdout.splitlines()[-1])
    return answer


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A machine's folder; what was started in it does not outlive the test."""
    yield tmp_path
    if (tmp_path / "var" / "worker-lab-1.service.json").exists():
        there(tmp_path, "stop", stop_s=0.1)


def start(folder: Path, at_sigterm: str) -> int:
    """Start a program that does something at SIGTERM; its process id."""
    command = [sys.executable, "-c", LIVES.format(at_sigterm), str(folder)]
    content = {"command": command, "folder": str(folder), "environment": {}}
    there(folder, "install", stdin=json.dumps(content))
    started = there(folder, "start")
    assert started["running"]
    until((folder / "up").exists, 20, "it is up")
    return int(started["pid"])


LIVES = """
import os, pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])
def end(*_):
    {}
signal.signal(signal.SIGTERM, end)
(folder / "up").touch()
while True: time.sleep(60)
"""


def test_a_supervised_worker_may_finish_and_is_started_once(folder: Path) -> None:
    pid = start(folder, "time.sleep(0.3); (folder / 'finished').touch(); os._exit(0)")
    assert os.getpgid(pid) == pid
    again = there(folder, "start")
    assert (again["changed"], again["pid"]) == (False, pid)
    assert stat.S_IMODE((folder / "var" / "worker-lab-1.pid").stat().st_mode) == 0o600
    stopped = there(folder, "stop")
    assert (folder / "finished").exists()
    assert (stopped["changed"], stopped["running"]) == (True, False)
    assert there(folder, "stop")["changed"] is False


def test_a_supervised_worker_that_does_not_end_is_killed_after_its_time(folder: Path) -> None:
    start(folder, "pass")
    assert there(folder, "stop", stop_s=0.3)["running"] is False


def test_a_pid_that_was_left_behind_hits_nobody(tmp_path: Path) -> None:
    one = service.Supervised(tmp_path, "worker-lab-1", 5)
    (tmp_path / "var").mkdir()
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as bystander:
        one.pidfile.write_text(f"{bystander.pid}\n")
        one.stop()
        assert one.pid() == 0
        assert bystander.poll() is None
        bystander.kill()
