"""What `grader setup` writes: whole files after the journal, machines in config.toml, the command."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cli.deploy.units import SANDBOX_ACCOUNT, SERVER_ACCOUNT, Account
from cli.main import grader
from cli.setup import accounts, command, machines, postgresql, redis, system, undo
from cli.setup.host import Host, Journal, Made, SetupError
from cli.setup.machines import Named
from cli.setup.steps import UNITS, Answers, Setup
from grading.config.settings import parse

SAMPLE = Path("config.toml")


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host.at(tmp_path)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# --- files and the journal ----------------------------------------------------------------------------


def test_a_file_is_written_whole_once_and_known_to_the_journal(host: Host) -> None:
    host.path("/srv").mkdir()
    assert host.write("/srv/one", "a", 0o640)
    assert not host.write("/srv/one", "a", 0o640)
    assert (host.read("/srv/one"), mode(host.path("/srv/one"))) == ("a", 0o640)
    host.path("/srv/one").chmod(0o666)
    assert host.write("/srv/one", "a", 0o640)  # the mode counts, too
    assert host.write("/srv/one", "b", 0o640)
    assert [*host.path("/srv").iterdir()] == [host.path("/srv/one")]
    again = Host.at(host.root)
    assert again.journal.made == [Made("folder", "/etc/grader"), Made("file", "/srv/one")]
    assert mode(again.journal.path) == 0o600


def test_what_cannot_be_written_is_known_to_the_journal_all_the_same(host: Host) -> None:
    with pytest.raises(FileNotFoundError):
        host.write("/missing/one", "a", 0o600)
    assert Host.at(host.root).journal.made[-1] == Made("file", "/missing/one")


def test_links_of_the_users_of_services_lead_root_nowhere(host: Host) -> None:
    theirs, root = host.path("/var/redis"), host.path("/etc")
    for one in (theirs, root):
        one.mkdir(parents=True)
    theirs.chmod(0o777)
    root.chmod(0o755)
    (root / "shadow").write_text("secret")
    (theirs / "grader").symlink_to(root)
    (theirs / "known_hosts").symlink_to(root / "shadow")
    for follow in (
        lambda: host.folder("/var/redis/grader", 0o700),
        lambda: host.write("/var/redis/grader/shadow", "theirs", 0o666),
        lambda: host.read("/var/redis/known_hosts"),
        lambda: host.remove("/var/redis/grader/shadow"),
    ):
        with pytest.raises(SetupError, match=r"is a link in a folder that users"):
            follow()
    assert (mode(root), (root / "shadow").read_text()) == (0o755, "secret")
    host.write("/var/redis/known_hosts", "key", 0o600)  # takes the place of the link
    assert ((root / "shadow").read_text(), host.read("/var/redis/known_hosts")) == ("secret", "key")


def test_links_of_the_operator_are_followed(host: Host) -> None:
    for one in ("/srv/grader", "/data"):
        host.path(one).mkdir(parents=True)
    host.path("/srv/grader/var").symlink_to(host.path("/data"))
    host.folder("/srv/grader/var", 0o750)
    host.write("/srv/grader/var/one", "a", 0o600)
    assert (mode(host.path("/data")), host.read("/data/one")) == (0o750, "a")
    host.remove("/srv/grader/var")
    assert host.read("/data/one") == "a"


def test_a_program_that_fails_is_said_with_its_last_words(host: Host) -> None:
    here = Host(Path("/"), host.journal)
    with pytest.raises(SetupError, match=r"`sh -c echo no >&2; exit 3` ended with status 3: no"):
        here.run("sh", "-c", "echo no >&2; exit 3")
    with pytest.raises(SetupError, match="not installed"):
        here.run("no-such-program")
    with pytest.raises(SetupError, match="did not end within 0 s"):
        here.run("sleep", "60", timeout_s=0.1)


def test_undo_leaves_data_unless_asked(host: Host) -> None:
    for path in ("/etc/grader.unit", "/etc/grader/grader.env"):
        host.write(path, "secret", 0o600)
    host.journal.add("package", "redis-server")
    for _, step in undo.steps(host, data=False):
        step()
    assert not host.path("/etc/grader.unit").exists()
    assert host.read("/etc/grader/grader.env") == "secret"
    assert "apt-get remove redis-server" in "\n".join(undo.left(host, data=False))
    for _, step in undo.steps(host, data=True):
        step()
    assert not host.path("/etc/grader").exists()


def taken_back(host: Host) -> list[str]:
    """What `--undo --data` says of a step that failed."""
    said = []
    for _, step in undo.steps(host, data=True):
        try:
            step()
        except (SetupError, OSError) as error:
            said.append(str(error))
    return said


def test_undo_removes_nothing_that_setup_did_not_make(host: Host) -> None:
    host.path("/etc/grader").mkdir(parents=True)
    host.path("/etc/grader/config.toml").write_text("own")
    assert undo.steps(host, data=True) == []
    assert undo.left(host, data=True) == [
        "Setup has created nothing here: /etc/grader/setup.json does not exist."
    ]
    host.write("/etc/grader/grader.env", "secret", 0o600)
    assert taken_back(host) == []
    assert [one.name for one in host.path("/etc/grader").iterdir()] == ["config.toml"]


def test_what_could_not_be_taken_back_stays_in_the_journal(host: Host) -> None:
    host.path("/srv").mkdir()
    host.write("/srv/one", "a", 0o600)
    host.path("/srv").chmod(0o777)
    host.path("/srv/one").unlink()
    host.path("/srv/theirs").symlink_to("/")
    host.journal.add("file", "/srv/theirs/etc")
    assert [one.partition(". ")[0] for one in taken_back(host)] == [
        "theirs is a link in a folder that users other than root can change",
        "/etc/grader/setup.json is kept, because something in it still exists.",
    ]
    assert Host.at(host.root).journal.made[1:] == [Made("file", "/srv/theirs/etc")]
    host.path("/srv/theirs").unlink()
    again = Host.at(host.root)
    assert taken_back(again) == []
    assert not host.path("/etc/grader").exists()


def test_another_program_of_the_name_stays(host: Host) -> None:
    host.path("/usr/local/bin").mkdir(parents=True)
    accounts.no_other_command(host)
    host.write(accounts.COMMAND, accounts.wrapper("/x/python"), 0o755)
    accounts.no_other_command(host)
    host.path(accounts.COMMAND).write_bytes(b"\x7fELF\xff")
    with pytest.raises(SetupError, match="/usr/local/bin/grader is a program that setup did not create"):
        accounts.no_other_command(host)


# --- variables ----------------------------------------------------------------------------------------


def test_variables_are_set_beside_those_of_the_operator(host: Host) -> None:
    account = Account("root", "/etc/grader/own.env")
    host.path("/etc/grader").mkdir(parents=True)
    host.path(account.env_file).write_text('# mail\nGRADER_MAIL_PASSWORD="a b"\nTMPDIR=/tmp\n')
    assert accounts.keep_variables(host, account, {"TMPDIR": "/srv", "GRADER_SECRET_KEY": "k$`#"})
    assert not accounts.keep_variables(host, account, {"TMPDIR": "/srv"})
    read = {"GRADER_MAIL_PASSWORD": "a b", "TMPDIR": "/srv", "GRADER_SECRET_KEY": "k$`#"}
    assert accounts.variables(host, account) == read
    script = f'set -a; . {host.path(account.env_file)}; env -0 | tr "\\0" "\\n"'
    said = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True, env={}).stdout
    assert read.items() <= dict(line.split("=", 1) for line in said.splitlines()).items()
    host.path(account.env_file).write_text("BROKEN='\n")
    with pytest.raises(SetupError, match="BROKEN=…"):
        accounts.variables(host, account)


@pytest.mark.parametrize(
    ("words", "user"),
    [
        ("deploy --all", "grader-deploy"),
        ("sandbox", "grader-sandbox"),
        ("setup", "root"),
        ("doctor", "grader"),
        ("", "grader"),
    ],
)
def test_the_command_becomes_the_user_that_it_needs(words: str, user: str, tmp_path: Path) -> None:
    (tmp_path / "id").write_text("#!/bin/sh\necho nobody\n")
    for name in ("sudo", "runuser"):
        (tmp_path / name).write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "grader").write_text(accounts.wrapper("/srv/grader/.venv/bin/python"))
    for one in tmp_path.iterdir():
        one.chmod(0o755)
    environ = {"PATH": f"{tmp_path}:{os.defpath}"}
    program = str(tmp_path / "grader")
    said = subprocess.run([program, *words.split()], capture_output=True, text=True, check=True, env=environ)
    assert said.stdout.split() == ["-u", user, "--", program, *words.split()]


def test_the_command_completes_without_another_user(tmp_path: Path) -> None:
    (tmp_path / "grader").write_text(accounts.wrapper(sys.executable))
    (tmp_path / "grader").chmod(0o755)
    environ = {"PATH": os.defpath, "_GRADER_COMPLETE": "bash_complete"}
    words = {"COMP_WORDS": "grader dra", "COMP_CWORD": "1"}
    program = str(tmp_path / "grader")
    said = subprocess.run([program], capture_output=True, text=True, check=True, env=environ | words)
    assert said.stdout == "plain,drain\n"


def test_the_command_takes_no_program_from_the_folder_it_is_given_in(tmp_path: Path) -> None:
    (tmp_path / "cli").mkdir()
    (tmp_path / "cli" / "__init__.py").write_text("")
    (tmp_path / "cli" / "__main__.py").write_text("print('stolen')")
    (tmp_path / "id").write_text("#!/bin/sh\necho root\n")
    (tmp_path / "grader").write_text(accounts.wrapper(sys.executable))
    for name in ("id", "grader"):
        (tmp_path / name).chmod(0o755)
    said = subprocess.run(
        [str(tmp_path / "grader"), "setup", "--help"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={"PATH": f"{tmp_path}:{os.defpath}"},
    )
    assert "Set up or update this server" in said.stdout


# --- machines -----------------------------------------------------------------------------------------


def test_machines_are_named_in_one_word() -> None:
    named = Named.read("lab-1=ada@10.0.0.11:2222")
    assert (named, str(named)) == (Named("lab-1", "ada", "10.0.0.11", 2222), "lab-1=ada@10.0.0.11:2222")
    for wrong in ("lab-1", "lab-1=10.0.0.11", "Lab=ada@x", "lab=-l@x", "lab=ada@a b"):
        with pytest.raises(SetupError, match="NAME=USER@HOST"):
            Named.read(wrong)


def test_examples_give_way_to_machines_that_are_named() -> None:
    named = [Named("lab-1", "ada", "10.0.0.11"), Named("dgx-spark-1", "ada", "10.0.0.12", 2222)]
    text = machines.configured(SAMPLE.read_text(), named, "rules", "/etc/grader/ca.pem", first=True)
    config = parse(tomllib.loads(text))
    assert [one.name for one in config.machines] == ["dgx-spark-1", "lab-1"]
    spark, lab = config.machines
    assert spark.ssh is not None
    assert (spark.ssh.host, spark.ssh.port) == ("10.0.0.12", 2222)
    assert spark.stages["analysis"].engine == "ollama"  # as it stood there
    assert lab.stages["feedback"].engine == "rules"
    assert config.redis.ca_file == "/etc/grader/ca.pem"
    assert "# The four machines of the cluster." in text
    same = machines.configured(text, named, "ollama", "/etc/grader/ca.pem", first=False)
    assert same == text


@pytest.mark.parametrize("engine", machines.STAGES)
def test_every_engine_makes_a_valid_machine(engine: str) -> None:
    text = machines.configured("", [Named("lab-1", "ada", "10.0.0.11")], engine, "/x", first=True)
    (lab,) = parse(tomllib.loads(text)).machines
    assert set(lab.stages) == {"analysis", "feedback"}


def test_what_an_operator_wrote_stays(tmp_path: Path) -> None:
    own = '[[machines]]\nname = "mine" # by hand\nstages = { analysis = { engine = "rules", model = "r" } }\n'
    text = machines.configured(own, [], "ollama", "/x", first=True)
    assert '"mine" # by hand' in text
    text = machines.configured(own, [Named("lab-1", "a", "b")], "ollama", "/x", first=False)
    assert [one["name"] for one in tomllib.loads(text)["machines"]] == ["mine", "lab-1"]


# --- the system ---------------------------------------------------------------------------------------


@dataclass
class Recorder(Host):
    """A computer on which programs do nothing but end well."""

    ran: list[str] = field(default_factory=list)
    fails: tuple[str, ...] = ()
    """Words of programs that fail."""
    ends: subprocess.Popen[bytes] | None = None
    """Ended by `kill`, and waited for, as init does it."""

    def attempt(self, *words: str, **_how: Any) -> subprocess.CompletedProcess[str]:
        self.ran.append(" ".join(words))
        if self.ends is not None and words[-1] == str(self.ends.pid):
            self.ends.kill()
            self.ends.wait()
        return subprocess.CompletedProcess(words, int(any(one in words for one in self.fails)), "", "")

    def _gid(self, name: str) -> int:
        return os.getegid()


def computer(folder: Path, release: str) -> Recorder:
    one = Recorder(folder, Journal(folder / "journal"))
    one.path("/etc/apparmor.d").mkdir(parents=True)
    one.path("/etc/os-release").write_text(release)
    return one


@pytest.mark.parametrize(
    ("release", "said"),
    [
        (
            'ID=fedora\nVERSION_ID=42\nPRETTY_NAME="Fedora 42"',
            "this is Fedora 42. Missing here: redis-server, psql",
        ),
        ('ID=debian\nVERSION_ID="11"\nPRETTY_NAME="Debian 11"', "this is Debian 11"),
        ('ID=ubuntu\nVERSION_ID="22.04"\nPRETTY_NAME="Ubuntu 22.04"', "this is Ubuntu 22.04"),
    ],
)
def test_other_systems_are_refused_before_anything_is_changed(
    release: str, said: str, tmp_path: Path
) -> None:
    one = computer(tmp_path, release)
    with pytest.raises(SetupError, match=re.escape(said)):
        system.look(one, Path.cwd())
    assert one.ran == []
    assert not one.journal.path.exists()


@pytest.mark.parametrize("release", ['ID=debian\nVERSION_ID="13"', 'ID=ubuntu\nVERSION_ID="24.04"'])
def test_newer_systems_are_taken(release: str, tmp_path: Path) -> None:
    assert system.wrong_system(computer(tmp_path, release)) == []


def test_a_checkout_that_services_cannot_reach_is_refused(tmp_path: Path) -> None:
    one = computer(tmp_path, 'ID=debian\nVERSION_ID="12"')
    checkout = tmp_path / "shut" / "grader"
    (checkout / "cli").mkdir(parents=True)
    (checkout / "cli" / "main.py").touch()
    (checkout / "cli" / "main.py").chmod(0o644)
    (tmp_path / "shut").chmod(0o700)
    with pytest.raises(SetupError, match=r"as .* is closed to others: move the checkout"):
        system.look(one, checkout)
    (checkout / "cli" / "main.py").chmod(0o600)
    with pytest.raises(SetupError, match=r"chmod -R go\+rX"):
        system.look(one, checkout)


@pytest.mark.parametrize("changeable", [".", ".git", ".venv"])
def test_a_program_that_others_can_change_is_refused(changeable: str, tmp_path: Path) -> None:
    checkout = tmp_path / "grader"
    for one in ("cli", ".git", ".venv", "var"):
        (checkout / one).mkdir(parents=True)
    (checkout / "cli" / "main.py").touch()
    (checkout / "cli" / "main.py").chmod(0o644)
    (checkout / changeable).chmod(0o777)
    place = re.escape(str(checkout / changeable))
    if os.geteuid() == 0:
        with pytest.raises(SetupError, match=f"Users other than root can change {place},"):
            system.look(computer(tmp_path, ""), checkout)
    with pytest.raises(SetupError, match=f"sudo chown -R root:root {checkout} && .* grader: {checkout}/var"):
        system.look(computer(tmp_path / "other", ""), checkout)


def test_variables_of_a_server_made_by_hand_are_named(tmp_path: Path) -> None:
    one = computer(tmp_path, "")
    one.path("/etc/grader.env").touch()
    with pytest.raises(SetupError, match=r"Move its lines to /etc/grader/grader\.env"):
        system.look(one, Path.cwd())


# --- addresses ----------------------------------------------------------------------------------------


def setup_with(folder: Path, variables: str) -> Setup:
    one = computer(folder, "")
    one.path("/etc/grader").mkdir()
    one.path("/etc/grader/grader.env").write_text(variables)
    return Setup(one, Answers("127.0.0.1"), Path.cwd(), lambda _text: None, lambda _question: False)


@pytest.mark.parametrize(
    "address",
    ["postgresql://u:p@db.school.example/grades", "postgresql://grader:p@localhost/term_2"],
)
def test_another_database_is_left_alone_and_told_to_the_sandbox(address: str, tmp_path: Path) -> None:
    one = setup_with(tmp_path, f"GRADER_DATABASE_URL={address}\n")
    step = {name: step for name, _, step in one.steps()}["database"]
    assert "which is used; done" in step()
    for account in (SERVER_ACCOUNT, SANDBOX_ACCOUNT):
        assert accounts.variables(one.host, account) == {"GRADER_DATABASE_URL": address}
    assert "which is used; no change" in step()


def test_a_part_that_is_wanted_no_more_is_stopped(tmp_path: Path) -> None:
    one = setup_with(tmp_path, "")
    one.facts = system.Facts("Debian", True, 9)
    units = [f"{UNITS}/grader-{part}.service" for part in ("web", "gateway")]
    one.host.path(UNITS).mkdir(parents=True)
    for unit in units:
        one.host.write(unit, "", 0o644)
        one.host.journal.add("unit", Path(unit).name)
    one.host.journal.add("unit", redis.SERVICE)
    computer_of(one).fails = ("is-active",)
    assert one.drop_others(["web", "store"])
    assert [one.host.path(unit).exists() for unit in units] == [True, False]
    assert [made.name for made in one.host.journal.made] == [units[0], "grader-web.service", redis.SERVICE]
    assert "systemctl disable --now grader-gateway.service" in computer_of(one).ran
    assert not one.drop_others(["web", "store"])
    computer_of(one).fails = ()
    with pytest.raises(SetupError, match=r"grader-web\.service still runs"):
        one.drop_others(["store"])


def computer_of(one: Setup) -> Recorder:
    assert isinstance(one.host, Recorder)
    return one.host


def named(addresses: list[str]) -> Callable[..., list[tuple[object, ...]]]:
    return lambda *_args, **_how: [(0, 0, 0, "", (one, redis.PORT)) for one in addresses]


@pytest.mark.parametrize(
    ("name", "addresses", "said"),
    [
        ("server.school.example", ["127.0.1.1"], "is 127.0.1.1 here, which machines cannot reach"),
        ("server.school.example", ["192.0.2.7", "127.0.1.1"], "is 192.0.2.7, which is not this computer"),
        ("192.0.2.7", ["192.0.2.7"], "is 192.0.2.7, which is not this computer"),
        ("localhost", ["127.0.0.1"], None),
        ("127.0.0.1", ["127.0.0.1"], None),
    ],
)
def test_redis_listens_where_machines_reach_it(
    name: str, addresses: list[str], said: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis.socket, "getaddrinfo", named(addresses))
    if said is None:
        assert redis.addresses_of(name) == tuple(addresses)
    else:
        with pytest.raises(SetupError, match=f"{re.escape(said)}.*Use another one with --address"):
            redis.addresses_of(name)


def test_redis_without_systemd_is_known_to_the_journal_and_ended(tmp_path: Path) -> None:
    one = computer(tmp_path, "")
    one.path(redis.DATA).mkdir(parents=True)
    assert system.start_redis(one, changed=True)
    with subprocess.Popen(["sleep", "60"]) as process:
        one.path(redis.PID).write_text(f"{process.pid}\n")
        assert not system.start_redis(one, changed=False)
        one.ends = process
        assert undo.steps(one, data=False)[0][0] == f"end the process {redis.PID}"
        assert taken_back(one) == []
        assert process.wait() != 0
    assert not one.path(redis.PID).exists()


def test_what_setup_writes_is_known_again() -> None:
    assert postgresql.is_ours(postgresql.url("a/b"))
    assert redis.is_ours(redis.url("server", "a/b", "127.0.0.1"))


@pytest.mark.parametrize(
    "address", ["redis://:p@127.0.0.1:6379/0", "rediss://server:p@redis.school.example:6380/0"]
)
def test_another_redis_is_named_before_anything_is_changed(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = setup_with(tmp_path, f"GRADER_REDIS_URL={address}\n")
    monkeypatch.setattr(system, "look", lambda *_: system.Facts("Debian", True, 9))
    with pytest.raises(SetupError, match="is not the Redis of setup"):
        one.steps()[0][2]()
    assert not one.host.journal.path.exists()


FURTHER = (
    "GRADER_REDIS_URL=rediss://server:p@10.0.0.5:6380/0\n"
    "GRADER_DATABASE_URL=postgresql://grader:p@10.0.0.5/grader\n"
)


def test_a_further_server_makes_no_redis_and_no_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = setup_with(tmp_path, FURTHER)
    monkeypatch.setattr(system, "look", lambda *_: system.Facts("Debian", True, 9))
    steps = {name: step for name, _, step in one.steps()}
    assert not {"certificates", "Redis", "machines"} & set(steps)
    assert not {"redis-server", "postgresql"} & set(system.packages(False, stores=False))
    with pytest.raises(
        SetupError, match=r"Copy from there: GRADER_SECRET_KEY in .*, /etc/grader/config\.toml"
    ):
        steps["system"]()
    one.host.path("/etc/grader/config.toml").write_text(SAMPLE.read_text("utf-8"))
    one.host.path("/etc/grader/grader.env").write_text(f"{FURTHER}GRADER_SECRET_KEY=s-word\n")
    steps["system"]()
    steps["database"]()
    assert steps["configuration"]() == "no change"
    assert steps["secrets"]() == "done"
    told = accounts.variables(one.host, SANDBOX_ACCOUNT)
    assert told == dict(line.split("=", 1) for line in FURTHER.splitlines())
    assert accounts.variables(one.host, SERVER_ACCOUNT)["GRADER_SECRET_KEY"] == "s-word"
    assert accounts.variables(one.host, accounts.DEPLOY_ACCOUNT) == {}
    assert steps["secrets"]() == "no change"


# --- the key ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("left", [machines.KEY, f"{machines.KEY}.pub"])
def test_half_a_key_is_made_anew(left: str, tmp_path: Path) -> None:
    one = computer(tmp_path, "")
    one.path(machines.KEY).parent.mkdir(parents=True)
    one.path(left).write_text("old")
    assert machines.make_key(one)
    assert not one.path(left).exists()
    assert one.ran[-1].endswith(f"-f {machines.KEY}")
    for half in (machines.KEY, f"{machines.KEY}.pub"):
        one.path(half).write_text("new")
    assert not machines.make_key(one)


def test_apparmor_lets_bubblewrap_through_where_it_keeps_users_from_it(tmp_path: Path) -> None:
    one = computer(tmp_path, "")
    assert not system.allow_sandboxes(one)
    restricted = one.path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
    restricted.parent.mkdir(parents=True)
    restricted.write_text("1\n")
    assert system.allow_sandboxes(one)
    assert one.ran[-1] == f"apparmor_parser -r {system.PROFILE}"
    assert Made("file", system.PROFILE) in one.journal.made
    one.path(system.PROFILE).touch()
    assert not system.allow_sandboxes(one)


# --- the command --------------------------------------------------------------------------------------


def test_a_dry_run_prints_every_step_and_changes_nothing() -> None:
    made = [Path(one) for one in (accounts.FOLDER, accounts.COMMAND, accounts.DEPLOY_HOME)]
    before = [path.exists() for path in made]
    words = ["setup", "--dry-run", "--sample", "--address", "10.0.0.5", "--machine", "lab-1=ada@10.0.0.11"]
    said = CliRunner().invoke(grader, words)
    assert said.exit_code == 0, said.output
    lines = said.stdout.splitlines()
    assert [line.split(" ")[0] for line in lines] == [f"{n}/{len(lines)}" for n in range(1, len(lines) + 1)]
    assert "with lab-1" in said.stdout
    assert [path.exists() for path in made] == before


def test_nobody_but_root_touches_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "LOCK", tmp_path / "lock")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(SetupError, match=r"Run setup as root \(sudo\)"), command.alone():
        pass
    assert not (tmp_path / "lock").exists()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with (
        command.alone(),
        pytest.raises(SetupError, match="Another `grader setup`"),
        command.alone(),
    ):
        pass


def test_a_dry_run_makes_no_environment(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    shutil.copy("scripts/setup", tmp_path / "scripts")
    (tmp_path / "scripts" / "bootstrap").write_text("#!/bin/sh\ntouch made\n")
    (tmp_path / "scripts" / "bootstrap").chmod(0o755)
    said = subprocess.run(
        [str(tmp_path / "scripts" / "setup"), "--dry-run"], capture_output=True, text=True, check=False
    )
    assert not (tmp_path / "made").exists()
    assert (said.returncode, "Create it with scripts/bootstrap run" in said.stderr) == (1, True)


def test_data_are_removed_by_undo_only() -> None:
    said = CliRunner().invoke(grader, ["setup", "--data"])
    assert said.exit_code == 2
    assert "--undo" in said.stderr
