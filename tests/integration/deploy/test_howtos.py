"""What the documents say to operators, followed to the letter on bare servers.

Only what stands for something else is replaced, as REPLACED says. Blocks and their names are those of
tests/support/howtos.py. Each test goes on where the one before ended.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support import howtos
from tests.support.bare_host import Host, Hosts, bare_hosts
from tests.support.howtos import blocks

pytestmark = pytest.mark.soak

PASSWORD = "correct-horse/battery@staple#%"
# no machine has a model here, so nothing may be asked for one
MACHINES = "--machine lab-1=grader@10.0.0.11 --machine lab-2=grader@10.0.0.12"
OPTIONS = f"--yes --engine rules --address 10.0.0.5 {MACHINES}"
REPLACED = {
    "sudo scripts/setup\n": f"sudo scripts/setup {OPTIONS}\n",
    "ADDRESS": "git://127.0.0.1/hub",
    "dgx-spark-1": "lab-1",
    "DGX_SPARK_1": "LAB_1",
    "s123456": "cleo",
    "grader-20261120T031000.123Z.zip": "before-the-exam.zip",
}
NO_MODELS = {
    f" --model-folder {folder}": ""
    for folder in (
        "/srv/models/ollama",
        "/srv/models/huggingface/hub",
        "mlx-community/gemma-3-27b-it-bf16=/srv/models/gemma",
    )
}
ANSWERS = {
    "Enter file in which to save the key": "",
    "nter passphrase": "",
    "nter same passphrase again": "",
    "continue connecting": "yes",
    "'s password:": PASSWORD,
    "New password:": PASSWORD,
    "Retype new password:": PASSWORD,
    "Password:": PASSWORD,
    "Repeat for confirmation:": PASSWORD,
    "Do you want to continue? [Y/n]": "y",
    "Erase all of it?": "y",
}
PARTS = "grader-web grader-store grader-sandbox grader-sweep"
# the state of the shell that an operator types one block after the other into
SESSION = """
touch ~/.session
. ~/.session
set -e
{}
export -p | grep -v ' \\(OLDPWD\\|PWD\\|SHLVL\\)=' > ~/.session
echo "cd '$PWD'" >> ~/.session
"""


@dataclass
class School:
    """One server and two machines, and what has been played."""

    hosts: Hosts
    server: Host
    machines: dict[str, Host]
    texts: Mapping[str, howtos.Block]
    played: list[str] = field(default_factory=list)
    took: dict[str, float] = field(default_factory=dict)
    token: str = ""

    def play(self, names: tuple[str, ...], host: Host | None = None, **replaced: str) -> str:
        """What was said when these blocks were typed in as they stand."""
        said = ""
        for name in names:
            text = self.texts[name].text
            for old, new in {**REPLACED, **replaced}.items():
                text = text.replace(old, new)
            begun = time.monotonic()
            said += (host or self.server).converse(SESSION.format(text), ANSWERS)
            self.took[name] = self.took.get(name, 0) + time.monotonic() - begun
            self.played.append(name)
        return said

    def all_well(self) -> str:
        """What the doctor says; nothing may be wrong."""
        said = self.server.try_run("sudo grader doctor").stdout
        assert "✗" not in said, said
        return said


@pytest.fixture(scope="module")
def school(root: Path) -> Iterator[School]:
    """Servers that have a system, a network and the repository, and nothing of Grader."""
    with bare_hosts() as hosts:
        server = hosts.add("server", 5)
        machines = {"lab-1": hosts.add("lab-1", 11), "lab-2": hosts.add("lab-2", 12)}
        for host in (server, *machines.values()):
            host.run("sudo apt-get update -q")
        offer(server, root)
        yield School(hosts, server, machines, blocks(root))


def offer(host: Host, root: Path) -> None:
    """What is committed here, at the address that a clone comes from."""
    host.put(root, "hub")
    daemon = "git daemon --base-path=$HOME --export-all --listen=127.0.0.1 --reuseaddr"
    host.run(f"sudo systemd-run -q --unit=hub --uid=debian {daemon}")
    host.run("until git ls-remote -q git://127.0.0.1/hub; do sleep 0.1; done", seconds=30)


def test_a_server_and_its_machines_are_set_up(school: School) -> None:
    for host in school.machines.values():
        school.play(howtos.MACHINE, host)
    school.play(howtos.KEYS)
    again = (
        school.texts[howtos.KEYS[0]]
        .text.replace("10.0.0.11", "10.0.0.12")
        .replace("ssh-keygen -t ed25519\n", "")
    )
    school.server.converse(again, ANSWERS)
    said = school.play(howtos.SET_UP)
    assert "It is not shown again" in said
    school.all_well()


def test_people_assignments_and_a_submission(school: School) -> None:
    said = school.play(howtos.PEOPLE) + school.play(howtos.EVERY_DAY, **{"user add ben": "user add bea"})
    (school.token,) = re.findall(r"\bgrd_\S+", said)
    assert "graded" in submit(school.server, school.token, "excellent.py", "cleo")


def submit(host: Host, token: str, work: str, student: str) -> str:
    """What a command for one submission says when it has been graded."""
    return host.run(
        f"cd /srv/grader; export GRADER_SERVER=http://127.0.0.1:8080 GRADER_TOKEN={token}\n"
        f".venv/bin/grader submit samples/submissions/python-basket/{work} --student {student}"
        " --assignment business-analytics/python-basket --wait"
    )


def test_back_ups_are_made_restored_and_tried_out(school: School) -> None:
    school.play(howtos.BACK_UP)
    for number, kind in ((3, "service"), (4, "timer")):
        text = school.texts[f"maintenance.md: Back up ({number})"].text
        school.server.write(f"/etc/systemd/system/grader-backup.{kind}", text, user="root")
    school.play(howtos.EVERY_NIGHT)
    assert "grader-backup.timer" in school.server.run("systemctl list-timers")
    assert len(school.server.run("sudo ls /backup").split()) == 3
    assert "Restored: postgresql" in school.play(howtos.RESTORE)
    assert school.server.run(f"systemctl is-active {PARTS}").split() == ["active"] * 4


def test_a_student_is_exported_and_erased(school: School) -> None:
    assert "Erased:" in school.play(howtos.STUDENT)


def test_the_server_is_updated(school: School) -> None:
    hub = "git -C ~/hub -c user.name=x -c user.email=x@localhost"
    school.server.run(
        f"cd ~/hub; echo '# newer' >> config.toml; echo '# newer' >> cli/main.py; {hub} commit -qam newer"
    )
    before = school.server.run("systemctl show --property=MainPID grader-web")
    school.play(howtos.UPDATE)
    assert school.server.run("systemctl show --property=MainPID grader-web") != before
    assert "newer" in school.server.run("sudo git -C /srv/grader log -1 --format=%s")
    school.all_well()
    assert school.server.run("sudo grader cluster status").count("as here") == 2


def test_passwords_and_certificates_are_changed(school: School) -> None:
    secrets = "sudo cat /etc/grader/grader.env /etc/grader/deploy.env | grep -o '[A-Za-z0-9._-]\\{24,\\}'"
    before = set(school.server.run(secrets).split())
    files = "/etc/redis/grader/redis.pem /etc/grader/ca.pem /var/lib/grader-deploy/.ssh/id_ed25519.pub"
    old = [school.server.run(f"sudo cat {file}") for file in files.split()]
    school.play(howtos.ROTATION)
    assert not before & set(school.server.run(secrets).split())
    assert not set(old) & {school.server.run(f"sudo cat {file}") for file in files.split()}
    school.all_well()


def test_machines_are_set_up_without_internet(school: School) -> None:
    machines = school.machines.values()
    for machine in machines:
        machine.run("sudo ip route del default")
    gone = school.machines["lab-1"]
    gone.run("sudo loginctl terminate-user grader; sudo rm -r ~grader/grader")
    school.play(howtos.WITHOUT_INTERNET, **{"mac-studio-1": "lab-2", "mac-studio-2": "lab-2", **NO_MODELS})
    assert gone.run("sudo ls ~grader/grader/wheels") != ""
    school.all_well()


def test_the_server_moves_to_another_computer(school: School, root: Path) -> None:
    new = school.hosts.add("new", 6)
    new.run("sudo apt-get update -q")
    offer(new, root)
    people = "sudo -u postgres psql -Atc 'select name, password_hash from users order by id' grader"
    before = school.server.run(people)
    school.server.run("cd")
    school.play(howtos.MOVE_FROM)
    packed = school.server.run("ls -d /srv/grader/move.tar.gz ~/move.tar.gz 2>/dev/null || true").strip()
    new.write("move.tar.gz", (school.server.files / packed.lstrip("/")).read_bytes(), mode=0o600)
    school.play(howtos.MOVE_TO, new)  # ends with the doctor, who must not find anything
    assert new.run(people) == before
    assert new.run("sudo grader cluster status").count("as here") == 2
    assert "graded" in submit(new, school.token, "partial.py", "dan")


def test_every_block_was_played(school: School) -> None:
    assert sorted({*school.played, *howtos.CERTIFICATE}) == sorted(howtos.PLAYED)
    print("\n".join(f"{seconds:6.1f} s  {name}" for name, seconds in school.took.items()))
