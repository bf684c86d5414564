"""Faults of a deployment: each ends soon, with one sentence, and the release before goes on."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from cli.deploy import deployment
from cli.deploy.deployment import Deployment, Options
from cli.deploy.file_transfer import DEPLOY_SCRIPT
from cli.deploy.packages import ROOT, lock_for, platforms
from cli.deploy.releases import Lock
from cli.deploy.services import Heartbeats, services_of
from cli.deploy.ssh import Remote, remote_of
from cli.dev.embedded_redis import RedisProcess
from cli.settings import Settings
from tests.integration.deploy.conftest import ENVIRONMENT, Site
from tests.integration.deploy.test_deploy import silent, tiny_wheel
from tests.support.commands import Grader, Said
from tests.support.ssh_server import SshServer, ssh_server
from tests.support.system import until

ENDS_S = 60.0
BEATS_S = 10.0
BOX = """
mount -t tmpfs -o size=1100m,mode=755 none /mnt
mkdir /mnt/there /mnt/ada /mnt/full
mount -t tmpfs -o size=64k none /mnt/full
cat "$1/authorized_keys" > /mnt/authorized_keys
cp /etc/passwd "$1/passwd"
echo 'ada:*:12345:12345::/mnt/ada:/bin/sh' >> "$1/passwd"
mount --bind "$1/passwd" /etc/passwd
chown 12345 /mnt/ada
cp -r "$1/bin" /mnt/bin
shift
exec "$@"
"""
"""A machine with 1.1 GB for its folder, in memory, and a user ada; all of it ends with its sshd."""


SHRINK = """
until used=$(df --output=used /mnt | tail --lines=1); mount -o remount,size=$((used + 64))k /mnt; do :; done
"""
"""As if something else had taken all that was free."""
FAKES = {
    "systemctl": "#!/bin/sh\necho LoadState=not-found\n",
    "loginctl": "#!/bin/sh\n[ $1 = enable-linger ] || echo Linger=no\n",
}
"""What a manager of services says to a user who may not stay, where this computer has none."""


@dataclass
class Fault:
    """A machine with a release that runs, and what is done to it."""

    site: Site
    grader: Grader
    folder: Path
    monkeypatch: pytest.MonkeyPatch

    @property
    def remote(self) -> Remote:
        """The way to the machine, not shared with other connections."""
        alone = self.site.server.write_config("alone_config")
        self.monkeypatch.setenv("GRADER_SSH_CONFIG", str(alone))
        return remote_of(Settings(self.site.config).config.machine("lab-1"), os.environ)

    def deploy(self, *words: str, environment: str | Path = ENVIRONMENT) -> Said:
        """Deploy with an environment that is there already."""
        return self.grader("deploy", "lab-1", "--environment", str(environment), *words)

    def inside(self, *command: str) -> str:
        """Run a program where the machine's disks are."""
        enter = ("nsenter", "--target", str(self.site.server.pid), "--mount", *command)
        return subprocess.run(enter, check=True, capture_output=True, text=True, timeout=60).stdout

    def script(self, name: str, text: str) -> Path:
        """A program of the machine."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path


@contextmanager
def running(server: SshServer, folder: Path, there: Path, redis: str) -> Iterator[Site]:
    """A machine whose release sends heartbeats."""
    site = Site(server, folder / "config.toml", there)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADER_CONFIG", str(site.config))
        patch.setenv("GRADER_REDIS_URL", redis)
        patch.setenv("GRADER_SSH_CONFIG", str(server.config))
        site.write()
        settings = Settings(site.config)
        machine = settings.config.machine("lab-1")
        remote, options = remote_of(machine, os.environ), Options(environment=ENVIRONMENT)
        with Deployment(settings, machine, remote, options, os.environ, silent, silent) as first:
            for step in first.steps():
                first.run(step)
        try:
            yield site
        finally:
            services_of(machine, remote)[0].do("stop")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory, redis_server: RedisProcess) -> Iterator[Site]:
    """A machine that is this computer."""
    folder = tmp_path_factory.mktemp("ssh")
    with ssh_server(folder) as server, running(server, folder, folder / "there", redis_server.url) as site:
        yield site


@pytest.fixture(scope="module")
def boxed(tmp_path_factory: pytest.TempPathFactory, redis_server: RedisProcess) -> Iterator[Site]:
    """A machine with small disks of its own."""
    folder = tmp_path_factory.mktemp("box")
    (folder / "bin").mkdir()
    for name, text in FAKES.items():
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    environment = {"TMPDIR": "/mnt/full", "PATH": f"/mnt/bin:{os.environ['PATH']}"}
    prefix = ("unshare", "--mount", "sh", "-ec", BOX, "sh", str(folder))
    with (
        ssh_server(folder, environment, prefix, "/mnt/authorized_keys") as server,
        running(server, folder, Path("/mnt/there"), redis_server.url) as site,
    ):
        yield site


@pytest.fixture
def make_fault(grader: Grader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Site], Fault]:
    """A fault on one of the machines."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    return lambda site: Fault(site, grader, tmp_path, monkeypatch)


# --- the faults: each ends a deployment, and returns how ------------------------------------------


def key_refused(fault: Fault) -> Said:
    stranger = fault.site.server.write_config("stranger_config", identity="stranger")
    fault.monkeypatch.setenv("GRADER_SSH_CONFIG", str(stranger))
    return fault.deploy()


def two_at_once(fault: Fault) -> Said:
    first = Lock(fault.remote, "0123456789ab")
    try:
        return fault.deploy()
    finally:
        first.close()


def old_python(fault: Fault) -> Said:
    old = fault.script("python3.9", 'case "$2" in *version_info*) exit 1 ;; esac; echo "never run"')
    fault.site.write(python=old)
    return fault.deploy()


def does_not_start(fault: Fault) -> Said:
    python = fault.script("environment/bin/python", "echo 'no module named celery' >&2; exit 3")
    return fault.deploy(environment=python.parents[1])


def clock_off(fault: Fault) -> Said:
    fault.site.write(python=fault.script("python", f'exec faketime -f -1h {sys.executable} "$@"'))
    return fault.deploy()


def host_gone(fault: Fault) -> Said:
    """The machine ends all connections while it fetches a model."""
    return while_it_fetches(fault, signal.SIGKILL)


def network_cut(fault: Fault) -> Said:
    """Nothing is heard of the machine any more, and it hears nothing."""
    return while_it_fetches(fault, signal.SIGSTOP)


def while_it_fetches(fault: Fault, number: int) -> Said:
    """What serves the connections gets a signal in the middle of a step; what the step had begun ends."""
    site, folder, stopped = fault.site, fault.folder, list[int]()
    fault.script("bin/ollama", f"echo $$ > {folder}/pulls; exec sleep 600")
    wrapper = fault.script("python", f'PATH={folder}/bin:$PATH exec {sys.executable} "$@"')

    def hit() -> None:
        until((folder / "pulls").exists, 30, "the model is fetched")
        stopped.extend(sessions(site.server.pid))
        for pid in stopped:
            os.kill(pid, number)

    with tags() as url:
        site.write(python=wrapper, engine="ollama", more=f"[machines.engines.ollama]\nurl = '{url}'")
        fault.monkeypatch.setenv("GRADER_SSH_CONFIG", str(site.server.write_config("alone_config")))
        hitter = threading.Thread(target=hit)
        hitter.start()
        said = fault.deploy()
        hitter.join()
    pulls = Path("/proc", (folder / "pulls").read_text().strip())
    until(lambda: not pulls.exists(), 30, "what it had begun has ended")
    if number == signal.SIGSTOP:
        for pid in stopped:
            os.kill(pid, signal.SIGKILL)
    return said


def sessions(sshd: int) -> list[int]:
    """The processes of an sshd that serve connections."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = path.read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue
        if name.startswith("sshd") and int(rest.split()[1]) == sshd:
            found.append(int(path.parent.name))
    return found


@contextmanager
def tags() -> Iterator[str]:
    """An Ollama without models."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            """Silent."""

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "13")
            self.end_headers()
            self.wfile.write(b'{"models":[]}')

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.server_address[1]}"
        listening.shutdown()
        thread.join()


def disk_full(fault: Fault) -> Said:
    fault.inside("mount", "-o", "remount,size=900m", "/mnt")
    try:
        return fault.deploy()
    finally:
        fault.inside("mount", "-o", "remount,size=1100m", "/mnt")


def disk_fills(fault: Fault) -> Said:
    """Something else takes the rest of the disk while packages are installed."""
    environments = inside(fault.site) / "environments"

    def fill() -> None:
        until(lambda: list(environments.glob(".new-*/bin")), 30, "the environment grows")
        fault.inside("sh", "-c", SHRINK)

    filler = threading.Thread(target=fill)
    filler.start()
    try:
        return with_lock(fault, tiny_wheel(wheels_of(fault)))
    finally:
        filler.join()
        fault.inside("mount", "-o", "remount,size=1100m", "/mnt")


def broken_wheel(fault: Fault) -> Said:
    wheels = wheels_of(fault)
    lock = tiny_wheel(wheels)
    (wheels / "tiny_thing-1.0-py3-none-any.whl").write_bytes(b"cut short")
    return with_lock(fault, lock)


def wrong_architecture(fault: Fault) -> Said:
    lock = tiny_wheel(wheels_of(fault), tag="cp311-cp311-manylinux_2_17_x86_64")
    fault.site.write(python=fault.script("python", f'exec setarch i686 {sys.executable} "$@"'))
    return with_lock(fault, lock)


def wheels_of(fault: Fault) -> Path:
    """The folder of wheels for the machine."""
    facts = fault.remote.call(DEPLOY_SCRIPT, "facts")
    return fault.folder / "wheels" / f"{platforms(facts)[0]}-{'.'.join(facts['version'].split('.')[:2])}"


def with_lock(fault: Fault, lock: str) -> Said:
    """Deploy with other locked packages than Grader's."""
    (fault.folder / "requirements.lock").write_text(lock)
    shutil.copy(ROOT / "pyproject.toml", fault.folder)
    fault.monkeypatch.setattr(deployment, "lock_for", partial(lock_for, root=fault.folder))
    return fault.grader("deploy", "lab-1", "--offline", "--wheels", str(fault.folder / "wheels"))


def full_temporary_folder(fault: Fault) -> Said:
    """No fault any more: what is unpacked lies beside what it becomes. Then the packages do not start."""
    fault.inside("sh", "-c", "head -c 100000 /dev/zero > /mnt/full/all || true")
    said = with_lock(fault, tiny_wheel(wheels_of(fault)))
    assert "4/8 packages: 1 packages installed from wheels" in said.out
    return said


def read_only_home(fault: Fault) -> Said:
    fault.inside("mount", "--bind", "/mnt/there", "/mnt/there")
    fault.inside("mount", "-o", "remount,bind,ro", "/mnt/there")
    try:
        return fault.deploy()
    finally:
        fault.inside("umount", "/mnt/there")


def no_sudo(fault: Fault) -> Said:
    fault.site.write(user="ada", folder="/mnt/ada/grader", python="/usr/bin/python3", service="systemd")
    said = fault.deploy()
    assert not fault.inside("ls", "-A", "/mnt/ada")
    return said


FAULTS: dict[Callable[[Fault], Said], str] = {
    old_python: r"lab-1: there is no \S+/python3\.9\. Install it .* or name it in \[machines\.ssh\]",
    does_not_start: r"lab-1: the new release stopped right after its start, so the previous release, \w+, "
    r"runs again\. Fix it and deploy again\. Its log ends:\n(.*\n)*no module named celery",
    clock_off: r"lab-1: its clock is 60 min behind this computer's\. .*timedatectl set-ntp true",
    host_gone: r"The connection to lab-1 .* ended early\. What it did there ends, too\. Deploy again: it",
}
"""What ends a deployment, and its sentence."""
SEEN: dict[Callable[[Fault], Said], str] = {
    # test_cluster.py::test_machines_that_cannot_be_reached_are_said_why
    key_refused: r"lab-1 .* does not accept this computer's key\. Run `ssh-copy-id -p \d+ \S+`;",
    # test_releases.py::test_a_second_deployment_is_told_of_the_first
    two_at_once: r"lab-1: \S+ \(process \d+\) has been deploying to it for \d+ s; wait until that ends",
}
"""Those that end before the machine has changed, as other tests see, too."""
SLOW: dict[Callable[[Fault], Said], str] = {
    network_cut: r"The connection to lab-1 .* ended early\. What it did there ends, too\. Deploy again: it",
    disk_full: r"lab-1: the disk of /mnt/there has \d+ MB free, of which 1 GB must stay free\. Remove",
    disk_fills: r"lab-1: .*No space left on device.* Free some space there and deploy again; what runs is",
    broken_wheel: r"tiny_thing-1\.0-py3-none-any\.whl is damaged\. Remove it and deploy again",
    wrong_architecture: r"lab-1: wheels are missing for linux-i686 .* tiny-thing.*\. Put what is",
    full_temporary_folder: r"lab-1: the new release stopped right after its start, so the previous release, ",
    read_only_home: r"lab-1: the disk of /mnt/there is mounted read-only\. .* make it writable again",
    no_sudo: r"lab-1: services of ada stop when the user signs out; run there once: sudo loginctl enable",
}
"""Those that need a machine with disks of its own."""


def named(faults: dict[Callable[[Fault], Said], str], *marks: pytest.MarkDecorator) -> list[Any]:
    return [pytest.param(how, sentence, id=how.__name__, marks=marks) for how, sentence in faults.items()]


@pytest.mark.parametrize(("how", "sentence"), [*named(SEEN, pytest.mark.soak), *named(FAULTS)])
def test_a_fault(
    plain: Site, make_fault: Callable[[Site], Fault], how: Callable[[Fault], Said], sentence: str
) -> None:
    play(make_fault(plain), how, sentence)


@pytest.mark.soak
@pytest.mark.parametrize(("how", "sentence"), named(SLOW))
def test_a_fault_of_disks_and_packages(
    boxed: Site, make_fault: Callable[[Site], Fault], how: Callable[[Fault], Said], sentence: str
) -> None:
    play(make_fault(boxed), how, sentence)


def play(fault: Fault, how: Callable[[Fault], Said], sentence: str) -> None:
    """A deployment with a fault, and what is left."""
    state = kept(fault.site)
    begun = time.monotonic()
    said = how(fault)
    took_s = time.monotonic() - begun
    fault.site.write()
    fault.monkeypatch.setenv("GRADER_SSH_CONFIG", str(fault.site.server.config))
    assert said.status == 1, said
    assert re.search(sentence, said.error), said.error
    assert "Traceback" not in said.error.partition("Its log ends")[0]
    assert took_s < ENDS_S
    with Heartbeats(Settings(fault.site.config).config) as heartbeats:
        until(lambda: heartbeats.of("lab-1"), BEATS_S, "the release before sends heartbeats")
    assert kept(fault.site) == state
    # nothing that the fault left behind is in the way of the next one
    again = fault.deploy()
    assert again.status == 0, again.error
    assert again.out.endswith("lab-1: nothing changed\n")


def kept(site: Site) -> tuple[str, str]:
    """The state in use on a machine, and the one before."""
    there = inside(site)
    return os.readlink(there / "state"), os.path.realpath(there / "current")


def inside(site: Site) -> Path:
    """The folder of Grader on a machine, as it is seen from here."""
    return Path("/proc", str(site.server.pid), "root") / site.there.relative_to("/")
