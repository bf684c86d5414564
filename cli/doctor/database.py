"""The database: reachable, of this version, fit for its purpose; and the clocks."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from cli.doctor.finding import Finding, Installation, disk, failure, ok, size, warning
from grading.broker.dispatch import AWAY
from grading.broker.leases import Leases, connect
from grading.store import Store, schema
from grading.store.away import first_line, refuses_password
from grading.store.reporting import metrics
from grading.store.reporting.metrics import Open, Waiting
from grading.store.reporting.operations import (
    DatabaseFacts,
    database_bytes,
    file_of,
    last_backup_age_s,
    load_facts,
)

NETWORK_DISKS = ("nfs", "cifs", "smb", "fuse.sshfs", "9p", "afs")
MANY_SLOTS = 64
UPGRADE = "run `grader db upgrade`"
NEWER = "bring this code to that version (`git pull`, `scripts/bootstrap sandbox`), and change no tables"


def diagnose(installation: Installation, *, redis: bool) -> Iterator[Finding]:
    """All of it; without an answer only that is found. With `redis`, its clock is compared, too."""
    store = Store(installation.config.database.url)
    try:
        file = file_of(store)
        if file is not None and not file.exists():
            yield failure("database_missing", "database", f"there is no database {file} yet", UPGRADE)
            return
        yield from _look(installation, store, file, redis)
    except SQLAlchemyError as error:
        reason = first_line(error)
        if refuses_password(error):
            yield failure(
                "database_password_refused",
                "database password",
                f"the database does not accept this user and password ({reason})",
                "put the right ones into GRADER_DATABASE_URL of every part, and start them again",
            )
            return
        yield failure(
            "database_away",
            "database",
            f"the database does not answer ({reason})",
            "start it, or correct GRADER_DATABASE_URL",
        )
    except OSError as error:
        message = f"its file cannot be looked at ({error.strerror})"
        yield failure(
            "database_file_refused",
            "database",
            message,
            "run `grader doctor` as the user whom the store runs as",
        )
    finally:
        store.close()


def _look(installation: Installation, store: Store, file: Path | None, redis: bool) -> Iterator[Finding]:
    at = schema.current_revision(store)
    facts = load_facts(store)
    ahead_s = facts.now.timestamp() - time.time()
    yield ok("database", f"{facts.kind} {facts.version} answers")
    yield _tables(at)
    yield from _fit(installation, facts, file)
    yield from _clocks(installation, ahead_s, redis)
    if schema.fit_of(at) in ("same", "newer"):
        with store.read() as session:
            yield from _backlog(installation, metrics.count_open(session))
            yield _backup(installation, last_backup_age_s(session))
            yield _database_size(database_bytes(session), file)


def _tables(at: str | None) -> Finding:
    name, newest = "database tables", schema.newest_revision()
    match schema.fit_of(at):
        case "same":
            return ok(name, f"at revision {at}")
        case "older":
            message = f"at revision {at or 'nothing'}, this code needs {newest}"
            return failure("tables_older", name, message, UPGRADE)
        case "newer":
            message = f"at revision {at}, newer than this code ({newest}), which still works with it"
            return warning("tables_newer", name, message, NEWER)
    message = f"at revision {at}, which this code does not know: another version of Grader made it"
    return failure("tables_unknown", name, message, NEWER)


def _fit(installation: Installation, facts: DatabaseFacts, file: Path | None) -> Iterator[Finding]:
    name = "database kind"
    slots = sum(machine.slots for machine in installation.config.machines)
    if not facts.durable:
        remedy = "set `fsync = on` and `synchronous_commit = on`" if file is None else "let SQLite use WAL"
        yield warning(
            "database_not_durable", name, "what it commits may be lost when the power fails", remedy
        )
    if file is None:
        return
    if (system := _file_system(file)).startswith(NETWORK_DISKS):
        message = f"{file} is on a network disk ({system}), where SQLite loses data"
        yield failure(
            "database_on_network_disk", name, message, "put it on a disk of this computer, or use PostgreSQL"
        )
    elif slots > MANY_SLOTS:
        yield warning(
            "sqlite_many_slots", name, f"SQLite has one writer, and there are {slots} slots", "use PostgreSQL"
        )
    else:
        yield ok(name, "SQLite is enough for one server")
    remedy = "make room, or put the database elsewhere"
    yield disk("disk of the database", shutil.disk_usage(file.parent).free, installation.bounds, remedy)


def _file_system(path: Path) -> str:
    """The kind of file system, where the system tells; else nothing."""
    try:
        rows = [line.split() for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines()]
    except OSError:
        return ""
    above = {str(parent) for parent in path.resolve().parents}
    found = [(len(row[1]), row[2]) for row in rows if row[1] in above]
    return max(found)[1] if found else ""


def _clocks(installation: Installation, ahead_s: float, redis: bool) -> Iterator[Finding]:
    """The database's clock decides; others that differ confuse whoever reads logs."""
    apart = {"this computer": abs(ahead_s)}
    if redis:
        client = connect(installation.config.redis.url)
        with suppress(*AWAY):  # gone since it was looked at
            apart["Redis"] = abs(Leases(client).time() - time.time() - ahead_s)
        client.close()
    for name, seconds in apart.items():
        if seconds > installation.bounds.clock_s:
            message = f"the clock of {name} is {seconds:.0f} s from the database's"
            yield warning("clocks_differ", "clocks", message, "let both computers set their clocks by NTP")
    if max(apart.values()) <= installation.bounds.clock_s:
        yield ok("clocks", f"no more than {max(apart.values()):.1f} s apart")


def _backup(installation: Installation, age_s: float | None) -> Finding:
    name = "backup"
    remedy = "run `grader backup --to-folder DIR` every night; "
    remedy += "docs/how-to/administrators/maintenance.md has the timer"
    if age_s is None:
        return warning("backup_never", name, "none was ever made", remedy)
    message = f"the newest is {age_s / 3600:.0f} hours old"
    if age_s > installation.bounds.backup_s:
        return warning("backup_old", name, message, remedy)
    return ok(name, message)


def _database_size(count: int, file: Path | None) -> Finding:
    """A back-up needs room for about twice the database's size; where PostgreSQL is, only its host knows."""
    name = "database size"
    free = shutil.disk_usage(file.parent).free if file is not None else None
    if free is not None and free < 2 * count:
        message = f"{size(count)}, and {size(free)} are free beside it: less than a backup needs"
        remedy = "make room, set shorter times under [retention], or move it to a larger disk"
        return warning("database_large", name, message, remedy)
    return ok(name, size(count))


def _backlog(installation: Installation, now_open: Open) -> Iterator[Finding]:
    waiting = sum((w for (state, _), w in now_open.rounds.items() if state != "running"), Waiting(0, 0.0))
    message = f"{waiting.count} submissions wait, the oldest for {waiting.oldest_s / 60:.0f} minutes"
    if waiting.oldest_s > installation.bounds.backlog_s:
        yield warning("backlog_old", "backlog", message, "look at the machines below; add slots or machines")
    else:
        yield ok("backlog", message if waiting.count else "the queues are empty")
    if dead := sum(now_open.dead.values()):
        message = f"{dead} parts of submissions could not be done, and wait for a person"
        yield warning("dead_letters", "dead letters", message, "put right what failed, then `grader replay`")
