"""A server and two machines from nothing: cloned, set up, deployed, and the first submission graded."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import howtos
from tests.support.bare_host import Host, Hosts, bare_hosts

pytestmark = pytest.mark.soak

MINUTES, MOST = 10, 5
CLONE = "sudo git clone -q ADDRESS /srv/grader"
SETUP = "cd /srv/grader && sudo scripts/setup --yes --sample --engine rules"
DEPLOY = "sudo grader deploy --all"
SUBMIT = (
    'cd /srv/grader && GRADER_TOKEN="$(sudo grader token create --user admin)" .venv/bin/grader submit '
    "samples/submissions/python-basket/broken.py --assignment business-analytics/python-basket "
    "--student s1 --wait"
)
WITH_SANDBOX = "graded: 11.14 of 50"
"""What it earns when somebody ran it; 22.7 where nobody did."""
MACHINES = ("one", "two")
QUESTIONS = (
    "Address by which machines reach this server",
    "Add a machine",
    "Install R",
    "Import the sample",
    "Set up this computer now",
)
"""What setup asks; the enter key takes what stands there."""


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    with bare_hosts() as made:
        yield made


def server_with(hosts: Hosts, root: Path) -> Host:
    """A bare server whose operator has this repository at an address."""
    server = hosts.add("server", 5)
    server.put(root, "/srv/hub", user="root")
    return server


def machines_for(hosts: Hosts, server: Host) -> dict[str, str]:
    """Machines on which the operator signs in by a key from the server; as cluster.md prepares them."""
    server.run("ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/id_ed25519")
    key, addresses = server.run("cat ~/.ssh/id_ed25519.pub"), {}
    for number, name in enumerate(MACHINES, 11):
        machine = hosts.add(name, number)
        machine.run("sudo apt-get update -q && sudo apt-get install -q -y python3-venv")
        machine.run("sudo loginctl enable-linger debian")
        machine.write(".ssh/authorized_keys", key, mode=0o600)
        server.run(f"ssh-keyscan -t ed25519 {machine.address} >> ~/.ssh/known_hosts")
        addresses[name] = machine.address
    return addresses


def test_the_first_submission_is_graded_after_five_commands(hosts: Hosts, root: Path) -> None:
    server = server_with(hosts, root)
    machines = machines_for(hosts, server)
    named = " ".join(f"--machine {name}=debian@{address}" for name, address in machines.items())
    commands = [CLONE.replace("ADDRESS", "/srv/hub"), f"{SETUP} {named}", DEPLOY, SUBMIT]
    assert len(commands) <= MOST
    transcript, began = [], time.monotonic()
    for command in commands:
        started = time.monotonic()
        transcript += [f"$ {command}", server.run(command), f"# {time.monotonic() - started:.0f} s", ""]
    took = time.monotonic() - began
    print("\n".join(transcript), f"# in all {took:.0f} s", sep="\n")  # pytest -s
    assert took < MINUTES * 60
    assert WITH_SANDBOX in transcript[-3]
    assert "✗" not in server.run("sudo grader doctor || true")
    shut_in(server)
    cluster = server.run("sudo grader cluster status")
    assert all(name in cluster for name in machines)


def shut_in(server: Host, *, deploys: bool = True) -> None:
    """Each part is the user that it should be, with what that user may know, in a unit that allows little."""
    for part in ("web", "store", "sandbox", "sweep"):
        unit = f"grader-{part}.service"
        said = server.run(f"systemd-analyze security {unit} --no-pager | tail -1", "root")
        assert float(re.findall(r": ([\d.]+) ", said)[0]) <= 3.0, said
        pid = server.run(f"systemctl show --property=MainPID --value {unit}").strip()
        user = "grader-sandbox" if part == "sandbox" else "grader"
        assert server.run(f"stat --format=%U /proc/{pid}").strip() == user
        environment = server.run(f"tr '\\0' '\\n' < /proc/{pid}/environ", "root")
        assert ("GRADER_SECRET_KEY=" in environment) == (part != "sandbox")
    others = [("grader-sandbox", "grader.env"), ("debian", "sandbox.env")]
    for user, file in (*others, *([("grader", "deploy.env")] if deploys else [])):
        assert "Permission denied" in server.try_run(f"sudo -u {user} cat /etc/grader/{file}").stdout


def test_a_second_server_uses_redis_and_database_of_the_first(hosts: Hosts, root: Path) -> None:
    first, second = server_with(hosts, root), hosts.add("second", 6)
    second.put(root, "/srv/hub", user="root")
    first.run(CLONE.replace("ADDRESS", "/srv/hub"))
    first.run("cd /srv/grader && sudo scripts/setup --yes --sample")
    token = first.run("sudo grader token create --user admin").strip()
    played = howtos.blocks(root)
    first.run(played["several-hosts.md: Add a host"].text)
    for name in ("config.toml", "ca.pem", "further.env"):
        second.write(name, first.run(f"cat {name}"), mode=0o600)
    done = second.run(played["several-hosts.md: Add a host (2)"].text.replace("ADDRESS", "/srv/hub"))
    steps = steps_of(done)
    assert not {"certificates", "Redis", "machines"} & set(steps)
    assert "which is used" in steps["database"]
    assert steps["administrator"] == "no change"
    assert "python-basket" in second.run(f'python3 -c "{ASK}" {token}')
    shut_in(second, deploys=False)  # machines are the first one's
    assert "redis-server" not in second.run("dpkg-query --show --showformat='${Package} '")
    doctor = second.run("sudo grader doctor || true")
    assert "web app: accepts submissions" in doctor
    again = steps_of(second.run("sudo grader setup --yes"))
    assert {name for name, did in again.items() if did != "no change"} <= {
        "system",
        "database",
        "tables",
        "doctor",
    }
    assert "no machine is known" in second.try_run("sudo grader setup --yes --machine a=b@10.0.0.9").stdout
    undone = second.run("sudo grader setup --undo --data --yes")
    assert "Some steps failed" not in undone
    assert "python-basket" in first.run(f'python3 -c "{ASK}" {token}')


def steps_of(output: str) -> dict[str, str]:
    """What each step did, by its name."""
    lines = output.splitlines()
    found = {}
    for number, line in enumerate(lines):
        if match := re.match(r"\d+/\d+ ([^:]+): ", line):
            later = [one for one in lines[number + 1 :] if not one.startswith("    ")]
            end = lines.index(later[0], number + 1) if later else len(lines)
            found[match[1]] = lines[end - 1].strip()
    return found


ASK = (
    "import sys, urllib.request as web; "
    "url = 'http://127.0.0.1:8080/api/v1/assignments'; "
    "call = web.Request(url, headers={'Authorization': 'Bearer ' + sys.argv[1]}); "
    "print(web.urlopen(call).read())"
)


def test_setup_goes_on_after_it_was_killed_and_takes_back_what_it_made(hosts: Hosts, root: Path) -> None:
    server = server_with(hosts, root)
    server.run(CLONE.replace("ADDRESS", "/srv/hub"))
    for seconds in (5, 20, 35, 50, 65):
        killed = f"cd /srv/grader && sudo timeout --signal KILL {seconds} scripts/setup --yes --sample"
        server.try_run(killed)
    done = server.run("cd /srv/grader && sudo scripts/setup --yes --sample")
    assert "sandbox: runs Python" in done
    assert "Nothing that students submit is run" not in done
    again = steps_of(server.run("sudo grader setup --yes"))
    changed = {name for name, did in again.items() if did != "no change"}
    assert changed <= {"system", "tables", "doctor"}, again
    token = server.run("sudo grader token create --user admin").strip()

    assert "apt-get remove" in server.run("sudo grader setup --undo")
    assert server.run("systemctl list-units --no-legend 'grader-*' 'redis-server@*'") == ""
    assert server.run("find /etc/systemd /usr/local -name '*grader*'", "root") == ""
    asked = server.converse("cd /srv/grader && sudo scripts/setup", dict.fromkeys(QUESTIONS, ""))
    assert "this server [10.0.0.5]:" in asked
    back = steps_of(asked.replace("\r", ""))
    assert (back["database"], back["administrator"]) == ("no change", "no change")
    assert "python-basket" in server.run(f'python3 -c "{ASK}" {token}')

    server.run("sudo grader setup --undo --data --yes")
    left = "find /etc /usr/local /var/lib /srv/grader/var -iname '*grader*' 2>/dev/null || true"
    assert server.run(left, "root") == ""
    assert server.run("getent passwd | grep grader || true") == ""
    assert server.run("sudo -u postgres psql --no-align --tuples-only --list | grep grader || true") == ""
