"""Findings of the doctor where no whole installation is broken; and that nothing it can say is untested."""

from __future__ import annotations

import ast
import smtplib
import socket
import ssl
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from cli.doctor import broker, database, delivery, files, machines, replication, server, successor
from cli.doctor.finding import Bounds, Finding, Installation, disk
from cli.doctor.machines import REMEDIES
from grading.broker.leases import Leases
from grading.broker.machine_status import MachineState
from grading.broker.sentinels import Told
from grading.config.files import Files
from grading.config.redis_url import parse as read_url
from grading.config.settings import SignOn, parse
from grading.shared.code_version import software
from grading.store.accounts.second_factor import BreakGlassSignIn
from grading.store.reporting.metrics import Open, Waiting
from grading.store.reporting.operations import DatabaseFacts
from grading.store.reporting.replication import Replica, Replication, Slot
from tests.integration.cli import test_doctor
from tests.support.object_stores import KEYS, faulty_s3
from tests.support.redis_servers import acl_file, certificates, redis_server
from tests.support.tls_servers import tls_server
from workers.sandbox.backends import seccomp
from workers.server.delivery.mail import NotEncrypted

Row = tuple[str, str, str, str, str]
"""Level, check, code, and parts of the message and of the remedy."""
STAGES = {stage: {"engine": "instant", "model": "m"} for stage in ("analysis", "feedback")}


def installed(redis_url: str = "redis://127.0.0.1:1/0", **machine: Any) -> Installation:
    config = parse(
        {
            "redis": {"url": redis_url},
            "server": {"port": 1},
            "machines": [{"name": "one", "slots": 2, "stages": STAGES, **machine}],
        }
    )
    return Installation(config, Path(), {}, Bounds())


def require(found: Iterable[Finding], *rows: Row) -> None:
    said = list(found)
    for level, check, code, message, remedy in rows:
        assert any(
            (one.level, one.check, one.code) == (level, check, code)
            and message in one.message
            and remedy in one.remedy
            for one in said
        ), (code, said)


# --- Redis --------------------------------------------------------------------------------------------

STRANGE: list[Row] = [
    ("failure", "redis", "redis_no_writes", "refuses writes", "check its log and its disk"),
    ("failure", "redis keys", "redis_keys_of_another_type", "'store' is a string", "start the sweeper"),
    ("failure", "redis", "redis_info_failed", "INFO failed", "see its log"),
]
READER: list[Row] = [
    ("warning", "redis", "redis_read_only_user", "cannot write", "GRADER_REDIS_URL"),
    ("warning", "redis", "redis_info_refused", "cannot read INFO", "+info"),
    (
        "warning",
        "rate limits",
        "rate_limits_alone",
        "each web app counts requests separately",
        "create users.acl again",
    ),
]
OPEN: list[Row] = [
    (
        "failure",
        "redis password",
        "redis_open",
        "whoever reaches it can read and forge work",
        "set requirepass",
    ),
    ("warning", "redis tls", "redis_plain", "the connection is not encrypted", "use rediss://"),
]
ENDS: list[Row] = [
    ("warning", "redis certificate", "certificate_ends", "expires in 5 days", "renew it now"),
]
WEB_ENDS: list[Row] = [
    ("warning", "web certificate", "certificate_ends", "expires in 5 days", "renew it now"),
]
WENT: list[Row] = [("failure", "redis", "redis_went_away", "the connection was lost", "its log")]
SAID: list[Row] = [
    ("failure", "redis version", "redis_too_old", "6.0.20 is too old", "install 7.0"),
    (
        "warning",
        "redis version",
        "redis_old",
        "6.2.7 has no separate read and",
        "install 7.0",
    ),
    ("failure", "redis persistence", "redis_write_failed", "the last write to disk failed", "its disk"),
]


SET: list[Row] = [
    (
        "failure",
        "redis sentinels",
        "sentinel_away",
        "s2:1 does not know the set or does not answer",
        "start it",
    ),
    ("failure", "redis sentinels", "sentinels_disagree", "s1:1 says a:1, s3:1 says b:1", "redis.md"),
    (
        "warning",
        "redis sentinels",
        "sentinels_others",
        "4 know each other, and redis.url names 3",
        "name all",
    ),
]
FEW: list[Row] = [("warning", "redis sentinels", "sentinels_few", "2 know each other", "three hosts")]
QUORUM: list[Row] = [("warning", "redis sentinels", "sentinel_quorum", "3 of 3 decide", "use 2 of 3")]
NONE: list[Row] = [("failure", "redis replicas", "redis_no_replica", "there is no successor", "start one")]
BEHIND: list[Row] = [("warning", "redis replicas", "redis_replica_behind", "b:1 is online, 9 s", "link")]
REPLICA: list[Row] = [
    ("failure", "redis users", "redis_users_missing", "has no machine.one", "grader redis acl --install"),
    (
        "failure",
        "redis users",
        "redis_users_differ",
        "server: another password",
        "grader redis acl --install",
    ),
    ("failure", "redis replicas", "redis_replica_other", "no append-only file", "set `appendonly yes`"),
    ("warning", "clocks", "redis_clocks_differ", "differs from the primary's by 3600 s", "by NTP"),
]
REFUSES: list[Row] = [("failure", "redis replicas", "redis_replica_refuses", "does not answer", "its users")]


def told(sentinel: str, primary: str = "a", known: int = 3, quorum: int = 2) -> Told:
    state = {"ip": primary, "port": 1, "num-other-sentinels": known - 1, "quorum": quorum}
    return Told((sentinel, 1), {**state, "is_sdown": False, "is_odown": False, "config-epoch": 1})


def test_sentinels_that_cannot_decide() -> None:
    away = Told(("s2", 1), {}, RedisConnectionError("refused"))
    require(successor.of_sentinels([told("s1", known=4), away, told("s3", "b", known=4)]), *SET)
    require(successor.of_sentinels([told("s1", known=2), told("s2", known=2)]), *FEW)
    require(successor.of_sentinels([told(name, quorum=3) for name in ("s1", "s2", "s3")]), *QUORUM)


def test_a_replica_that_is_no_successor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require(successor.of_replicas({"role": "master"}), *NONE)
    row = {"ip": "b", "port": 1, "state": "online", "lag": 9}
    require(successor.of_replicas({"slave0": row}), *BEHIND)
    users = ["user server on >right ~* &* +@all"]
    with (
        redis_server(tmp_path / "a", acl_file(tmp_path / "a", [*users, "user machine.one on >x"])) as one,
        redis_server(tmp_path / "b", acl_file(tmp_path / "b", [f"{users[0]} -get"])) as two,
        test_doctor.connect(f"redis://server:right@127.0.0.1:{one}/0") as primary,
    ):
        clocks = iter((0.0, 3600.0))
        monkeypatch.setattr(Leases, "time", lambda _: next(clocks))
        address = read_url(f"redis://server:right@127.0.0.1:{one}/0")
        require(successor.of_replica(address, ("127.0.0.1", two), primary, Bounds()), *REPLICA)
        wrong = read_url(f"redis://server:wrong@127.0.0.1:{one}/0")
        require(successor.of_replica(wrong, ("127.0.0.1", two), primary, Bounds()), *REFUSES)


def test_a_redis_that_only_answers(tmp_path: Path) -> None:
    with redis_server(tmp_path, "requirepass right", 'rename-command INFO ""') as port:
        url = f"redis://:right@127.0.0.1:{port}/0"
        with test_doctor.connect(url) as client:
            client.set("store", "not a list")
            client.replicaof("127.0.0.1", 1)
        require(broker.diagnose(installed(url)), *STRANGE)


def test_users_of_redis_who_may_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    users = ["user default on nopass ~* &* +@all", "user reader on >right ~* &* +@read +ping -info"]
    with redis_server(tmp_path, acl_file(tmp_path, users)) as port:
        url = f"redis://reader:right@127.0.0.1:{port}/0"
        require(broker.diagnose(installed(url)), *READER)
        monkeypatch.setattr(broker, "on_loopback", lambda _: False)  # as from another computer
        monkeypatch.setattr(broker, "here", lambda _: False)
        require(broker.diagnose(installed(url)), *OPEN)

        def breaks(_url: str) -> bool:
            raise RedisConnectionError("cut off")

        monkeypatch.setattr(broker, "open_to_strangers", breaks)
        require(broker.diagnose(installed(url)), *WENT)


def test_a_certificate_that_ends_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = datetime.now(UTC) + timedelta(days=5, hours=1)
    tls = certificates(tmp_path / "tls", ends=f"{ends:%Y%m%d%H%M%SZ}")
    with redis_server(tmp_path / "redis", "requirepass right", tls=tls) as port:
        url = f"rediss://:right@localhost:{port}/0?ssl_ca_certs={tls.ca}"
        require(broker.diagnose(installed(url)), *ENDS)
    monkeypatch.setenv("SSL_CERT_FILE", str(tls.ca))
    with tls_server(tls) as port:
        require(server._certificate(f"https://localhost:{port}", Bounds()), *WEB_ENDS)


def test_what_redis_says_of_itself() -> None:
    wrote = {
        "role": "master",
        "aof_enabled": 1,
        "aof_last_write_status": "err",
        "aof_last_bgrewrite_status": "ok",
    }
    require([*map(broker._version, ("6.0.20", "6.2.7")), *broker._durable(wrote)], *SAID)


# --- the database -------------------------------------------------------------------------------------

DATABASE: list[Row] = [
    ("warning", "database kind", "database_not_durable", "lost at a power failure", "let SQLite use WAL"),
    ("failure", "database kind", "database_on_network_disk", "on a network disk (nfs4)", "use PostgreSQL"),
    ("warning", "database kind", "sqlite_many_slots", "one writer for 100 slots", "use PostgreSQL"),
    ("warning", "backlog", "backlog_old", "3 submissions queued, the oldest for 120 min", "add slots"),
    ("warning", "failed", "dead_letters", "2 stages failed", "grader replay"),
    ("warning", "database size", "database_large", "less than a backup needs", "larger disk"),
    (
        "failure",
        "database",
        "database_file_refused",
        "cannot be read (Permission denied)",
        "as the user",
    ),
    ("failure", "break-glass", "no_break_glass", "web apps do not start", "grader user break-glass"),
    ("warning", "break-glass", "break_glass_used", "Rita signed in with a break-glass", "that this person"),
]


def test_databases_that_are_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "grader.db"
    facts = DatabaseFacts("SQLite", "3", durable=False, now=datetime.now(UTC))
    many = installed(slots=100)
    found = [*database._fit(many, facts, file)]
    monkeypatch.setattr(database, "_file_system", lambda _: "nfs4")
    found += database._fit(many, replace(facts, durable=True), file)
    rounds, dead = {("queued", "interactive"): Waiting(3, 7200.0)}, {("analysis", "timeout"): 2}
    found += database._backlog(many, Open(rounds, {}, dead, {}, frozenset()))
    found.append(database._database_size(10**18, file))
    provider = {"title": "u", "issuer": "https://id.example", "client_id": "g"}
    off = SignOn.model_validate({"local_accounts": False, "providers": {"u": provider}})
    without = replace(many, config=many.config.model_copy(update={"sign_on": off}))
    found += database._break_glass(without, 0, [BreakGlassSignIn("Rita", facts.now)])

    def refuses(_store: object) -> Path:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(database, "file_of", refuses)
    found += database.diagnose(many, redis=False)
    require(found, *DATABASE)


REPLICATION: list[Row] = [
    ("failure", "database hosts", "database_two_primaries", "b:1 is the primary", "stop the old primary"),
    ("warning", "database hosts", "database_host_away", "b:1 is away", "rewind it"),
    ("warning", "replica", "replica_missing", "none follows", "start the replica"),
    ("failure", "replica", "replica_waited_for", "nothing can be stored", "stop waiting for it"),
    ("warning", "replica two", "replica_behind", "asynchronous, catchup, 0.1 GB behind", "the network"),
    ("warning", "replica three", "replica_hidden", "cannot read its position", "GRANT pg_monitor"),
    ("failure", "replication slot lost", "slot_lost", "is removed", "make the replica again"),
    ("warning", "replication slot old", "slot_keeps_log", "9.0 GB of the log for nobody", "drop_replication"),
    ("failure", "log archive", "archive_failing", "0001 could not be archived", "pgbackrest"),
]


def test_replicas_and_archives_that_are_not_well() -> None:
    alone = Replication((), (), "", archives=False, failing="")
    two = {"a:1": "primary", "b:1": "primary"}
    found = [*replication._look(Bounds(), alone, two)]
    found += replication._look(Bounds(), replace(alone, waits_for="*"), {"a:1": "primary", "b:1": "away"})
    replicas = (Replica("two", "catchup", False, 10**8), Replica("three", None, False, None))
    slots = (Slot("lost", False, 0, "lost"), Slot("old", False, 9 * 10**9, "extended"))
    found += replication._look(Bounds(), Replication(replicas, slots, "", True, "0001"), {})
    require(found, *REPLICATION)
    well = Replication(
        (Replica("two", "streaming", True, 0),), (Slot("two", True, 0, "reserved"),), "*", True, ""
    )
    said = [*replication._look(Bounds(), well, {"a:1": "primary", "b:1": "replica"})]
    assert [one.level for one in said] == ["ok"] * 4
    assert [*replication._look(Bounds(), alone, {})] == []


# --- machines -----------------------------------------------------------------------------------------

MACHINE: list[Row] = [
    ("failure", "machine one", "examination_unanswered", "did not answer", "restart `grader worker one`"),
    ("failure", "machine one software", "examination_unreadable", "cannot be read", "the same version"),
    (
        "failure",
        "machine one engine nobodys",
        "engine_unknown",
        "of config.toml is unknown",
        "correct its name",
    ),
    (
        "warning",
        "machine one software",
        "machine_software_differs",
        "runs version 0+aa",
        "restart the worker",
    ),
    ("warning", "machine one memory", "machine_memory_low", "1.0 GB available", "a smaller model"),
    ("failure", "machine one link", "link_broken", "transfers fail: reset", "the network"),
    ("warning", "machine one link", "link_slow", "round trip 120.0 ms", "use a cable"),
    ("failure", "machine one disk", "disk_full", "1.0 GB free, less than 5.0 GB", "free space there"),
    ("warning", "disk of /", "disk_nearly_full", "6.0 GB free", "make room"),
    ("failure", "machine one model m", "model_stalled", "why", "restart the engine there, and see its log"),
    ("failure", "machine one model m", "model_busy", "why", "wait, or let the engine serve"),
    ("failure", "machine one model m", "model_fails", "why", "docs/reference/model-faults.md"),
]
BY_SSH: list[Row] = [
    ("failure", "machine one", "machine_never", "no heartbeat", "grader cluster logs one"),
    ("failure", "machine one", "examination_unanswered", "did not answer", "grader cluster restart one"),
    ("failure", "machine one software", "examination_unreadable", "cannot be read", "grader deploy one"),
    ("warning", "machine one software", "machine_software_differs", "runs version", "grader deploy one"),
    ("failure", "machine one stages", "machine_stages_differ", "runs with no stage", "grader deploy one"),
    ("warning", "machine one slots", "machine_slots_differ", "with 3 slots", "grader deploy one"),
]
WEIGHTS: list[Row] = [
    (
        "failure", "model m", "weights_changed",
        "m (openai) on one has other weights than before", "grader accept-models one",
    ),
]  # fmt: skip
ROOM: list[Row] = [
    (
        "warning", "machine one capacity for m: context", "server_context_shorter",
        "has 8,192 tokens for each; config.toml has context_tokens = 32768", "set context_tokens = 8192",
    ),
    (
        "warning", "machine one capacity for m: memory", "server_cache_small",
        "has 12,000 tokens: 1 submission of 8,192", "set context_tokens = 6000",
    ),
]  # fmt: skip
DEPLOY = "run `grader deploy one`"
LINK = {"latency_s": 0.001, "to_server_bytes_s": 1e8, "from_server_bytes_s": 1e8}
EXAMINED = {
    "software": software(), "link": LINK, "models": [], "disk_free_bytes": 10**12,
    "memory": {"total_bytes": 8 * 10**9, "available_bytes": 4 * 10**9},
}  # fmt: skip


def looked_at(one: Installation, *answers: dict[str, Any] | None, **state: Any) -> Iterator[Finding]:
    """A live machine that gave these answers when it was examined."""
    (machine,) = one.config.machines
    alive = MachineState("one", "primary", 2, STAGES, alive=True, heartbeat_age_s=1.0)
    for answer in answers:
        yield from machines._machine(one, machine, replace(alive, **state), answer)


def test_machines_that_are_not_well() -> None:
    errors = [{"model": "m", "ok": False, "message": "why", "error": code} for code in (*REMEDIES, "other")]
    low = {"software": "0+aa", "disk_free_bytes": 10**9, "models": errors}
    memory = {"total_bytes": 8 * 10**9, "available_bytes": 10**9}
    found = [
        *looked_at(installed(), None, {"nothing": "of it"}, {**EXAMINED, **low, "memory": memory}),
        *looked_at(installed(), {**EXAMINED, "link": {"error": "reset"}}),
        *looked_at(installed(), {**EXAMINED, "link": {**LINK, "latency_s": 0.12}}),
        disk("disk of /", 6 * 10**9, Bounds(), "make room"),
    ]
    stage = {"analysis": {"engine": "nobodys", "model": "m"}}
    found += looked_at(installed(stages=stage, engines={"nobodys": {}}), None, alive=False)
    require(found, *MACHINE)


def test_servers_that_have_less_room_than_is_configured() -> None:
    told = {"context_tokens": 8192, "cache_tokens": 12_000, "context_setting": "--max-model-len"}
    model = {"engine": "instant", "model": "m", "ok": True, "seconds": 1.0, "digest": "", "capacity": told}
    require(looked_at(installed(), {**EXAMINED, "models": [model]}), *ROOM)


def test_weights_that_a_machine_did_not_have_before() -> None:
    digests = {"before": f"sha256:{'a' * 64}", "digest": f"sha256:{'b' * 64}"}
    stages = {"analysis": {"engine": "openai", "model": "m", **digests}}
    state = MachineState("one", "primary", 2, stages, alive=True, heartbeat_age_s=1.0)
    require(machines._model_digests([state], {}), *WEIGHTS)


def test_what_ssh_reaches_is_put_right_by_deploy() -> None:
    one = installed(ssh={"host": "one.school.example"})
    found = [
        *looked_at(one, None, {"nothing": "of it"}, {**EXAMINED, "software": "0+aa"}, stages={}, slots=3)
    ]
    found += looked_at(one, None, alive=False, heartbeat_age_s=None)
    require(found, *BY_SSH)
    assert {one.remedy.partition(",")[0] for one in found if one.code == "machine_never"} == {DEPLOY}
    assert not any("grader worker" in finding.remedy for finding in found)


# --- the server, mail ---------------------------------------------------------------------------------

WEB: list[Row] = [
    ("warning", "web app", "web_degraded", "they are not graded now", "Redis and machines"),
    (
        "failure",
        "web app",
        "web_without_database",
        "the database is away",
        "see the findings on the database",
    ),
    ("failure", "web app", "web_clock", "its clock differs by 3600 s", "see the findings on clocks"),
    ("failure", "web app", "web_is_another", "another program answers", "start it with `grader web`"),
]
ANSWERS = (
    (200, b'{"status": "degraded"}'),
    (503, b'{"status": "unavailable", "database": "away"}'),
    (503, b'{"status": "unavailable", "database": "ok", "clock": "differs by 3600 s"}'),
    (200, b'{"hello": "there"}'),
)
MAIL: list[Row] = [
    ("failure", "mail", "mail_not_encrypted", "s:25 offers no encryption", "use smtps in mail.url"),
    ("failure", "mail", "mail_password_refused", "s:25 refuses the user", "GRADER_MAIL_PASSWORD"),
    (
        "failure",
        "mail",
        "mail_untrusted",
        "the certificate of s:25 is not trusted",
        "or renew the certificate",
    ),
    ("failure", "mail", "mail_without_tls", "s:25 does not use TLS", "use smtps for TLS"),
    ("failure", "mail", "mail_unknown_host", "the host name of s:25 cannot be resolved", "check DNS"),
    ("failure", "mail", "mail_silent", "s:25 did not answer as a mail server within", "the firewall"),
]
ERRORS = (
    NotEncrypted(), smtplib.SMTPAuthenticationError(535, b"no"), ssl.SSLCertVerificationError(),
    ssl.SSLError(), socket.gaierror(), TimeoutError(),
)  # fmt: skip


@contextmanager
def answering(status: int, content: bytes) -> Iterator[int]:
    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as made:
        thread = Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield made.server_address[1]
        made.shutdown()
        thread.join()


def test_what_answers_in_the_web_apps_place() -> None:
    found: list[Finding] = []
    for answer in ANSWERS:
        with answering(*answer) as port:
            one = installed()
            config = one.config.model_copy(
                update={"server": one.config.server.model_copy(update={"port": port})}
            )
            found += server.web(replace(one, config=config))
    require(found, *WEB)


def test_why_a_mail_server_cannot_be_used() -> None:
    whys = [delivery._why(error, "s:25") for error in ERRORS]
    require([Finding("mail", "failure", why.message, why.remedy, why.code) for why in whys], *MAIL)


WEAKER: list[Row] = [
    (
        "warning",
        "sandbox",
        "sandbox_weaker",
        "sandboxes may make every system call",
        "apt-get install libseccomp2",
    ),
]


def test_a_sandbox_without_a_list_of_refused_system_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seccomp, "program", lambda: b"")
    require(server.sandbox(installed()), *WEAKER)


# --- all of it ----------------------------------------------------------------------------------------

OBJECTS = (
    ("failure", "object store", "objects_without_store", "nobody can read them", "name it again"),
    ("failure", "object store", "object_store_keys_missing", "set GRADER_FILES_KEY_ID", "set them for web"),
    ("failure", "object store", "object_store_refuses", "an object cannot be written (", "may write objects"),
    ("failure", "object store", "object_store_damaged", "other bytes than were written", "use another one"),
)


def test_object_stores_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    without, keys, refuses, damaged = OBJECTS
    monkeypatch.setattr(files, "has_objects", lambda _: True)
    require(files.diagnose(installed()), without)
    with faulty_s3() as server:
        config = installed().config.model_copy(update={"files": Files(bucket="school", endpoint=server.url)})
        one = replace(installed(), config=config)
        require(files.diagnose(one), keys)
        config.files.take_keys(KEYS)
        (well,) = files.diagnose(one)
        assert well.level == "ok"
        assert not server.objects
        for fault, row in (("403", refuses), ("wrong", damaged)):
            server.fault = fault
            require(files.diagnose(one), row)


HERE = (
    SET,
    FEW,
    QUORUM,
    NONE,
    BEHIND,
    REPLICA,
    REFUSES,
    STRANGE,
    READER,
    OPEN,
    ENDS,
    WEB_ENDS,
    WENT,
    SAID,
    DATABASE,
    REPLICATION,
    REPLICATION,
    MACHINE,
    ROOM,
    WEIGHTS,
    BY_SSH,
    WEB,
    MAIL,
    WEAKER,
    OBJECTS,
)
SAYS = {"failure", "warning", "Why", "Remedy"}
"""What a finding is made with; the code comes first."""


def codes_in(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in SAYS:
            code = node.args[0]
            if isinstance(code, ast.Constant):
                yield str(code.value)
            else:
                assert ast.unparse(code) in ("why.code", "remedy.code"), f"{path}: {ast.unparse(node)}"


def test_nothing_that_the_doctor_says_is_untested(root: Path) -> None:
    said = [
        code
        for folder in ("cli/doctor", "cli/commands")
        for path in sorted((root / folder).glob("*.py"))
        for code in codes_in(path)
    ]
    assert len(said) > 80
    assert sorted(said) == sorted(set(said)), "one code for one sentence"
    tested = {row[2] for rows in HERE for row in rows}
    tested |= {row[2] for row in test_doctor.FAULTS} | {row[2] for row in test_doctor.SAID}
    assert set(said) - tested == set()
    assert tested - set(said) - {""} == set()
