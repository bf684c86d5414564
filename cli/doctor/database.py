"""The database: reachable, of this version, fit for its purpose; and the clocks."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from cli.doctor.finding import Finding, Installation, disk, failure, ok, size, warning
from cli.doctor.replication import diagnose_replication
from cli.output import counted
from grading.broker.connections import connect
from grading.broker.dispatch import AWAY
from grading.broker.leases import Leases
from grading.store import Store, schema
from grading.store.accounts import second_factor
from grading.store.accounts.second_factor import BreakGlassSignIn
from grading.store.away import first_line, refuses_password
from grading.store.reporting import metrics
from grading.store.reporting.metrics import Open, Waiting
from grading.store.reporting.operations import (
    DatabaseFacts,
    database_bytes,
    file_of,
    first_entry_age_s,
    last_backup_age_s,
    load_facts,
)

NETWORK_DISKS = ("nfs", "cifs", "smb", "fuse.sshfs", "9p", "afs")
MANY_SLOTS = 64
UPGRADE = "run `grader db upgrade`"
NEWER = "update this code (`git pull`, `scripts/bootstrap sandbox`), and do not change tables"


def diagnose(installation: Installation, *, redis: bool) -> Iterator[Finding]:
    """All of it; without an answer only that is found. With `redis`, its clock is compared, too."""
    store = Store(installation.config.database.url)
    try:
        file = file_of(store)
        if file is not None and not file.exists():
            yield failure("database_missing", "database", f"{file} does not exist", UPGRADE)
            return
        yield from _look(installation, store, file, redis)
    except SQLAlchemyError as error:
        reason = first_line(error)
        if refuses_password(error):
            yield failure(
                "database_password_refused",
                "database password",
                f"the database refuses this user and password ({reason})",
                "correct them in GRADER_DATABASE_URL of every service, and restart the services",
            )
            return
        yield failure(
            "database_away",
            "database",
            f"the database does not answer ({reason})",
            "start it, or correct GRADER_DATABASE_URL",
        )
    except OSError as error:
        message = f"its file cannot be read ({error.strerror})"
        yield failure(
            "database_file_refused",
            "database",
            message,
            "run `grader doctor` as the user of the store worker",
        )
    finally:
        store.close()


def _look(installation: Installation, store: Store, file: Path | None, redis: bool) -> Iterator[Finding]:
    at = schema.current_revision(store)
    facts = load_facts(store)
    ahead_s = facts.now.timestamp() - time.time()
    yield ok("database", f"{facts.kind} {facts.version}")
    yield _tables(at)
    yield from _fit(installation, facts, file)
    yield from diagnose_replication(installation, store)
    yield from _clocks(installation, ahead_s, redis)
    if schema.fit_of(at) in ("same", "newer"):
        with store.read() as session:
            usable, used = second_factor.count_break_glass(session), second_factor.recent_break_glass(session)
            yield from _break_glass(installation, usable, used)
            yield from _backlog(installation, metrics.count_open(session))
            yield _backup(installation, last_backup_age_s(session), first_entry_age_s(session))
            yield _database_size(database_bytes(session), file)


def _break_glass(
    installation: Installation, usable: int, used: Sequence[BreakGlassSignIn]
) -> Iterator[Finding]:
    """Who gets in when providers of single sign-on are away, and whether somebody did."""
    name = "break-glass"
    if installation.config.sign_on.local_accounts:
        if usable:
            yield ok(name, f"{counted(usable, 'account')}; sign_on.local_accounts is true")
    elif usable:
        yield ok(name, f"{counted(usable, 'account')}; all other passwords are off")
    else:
        message = (
            "sign_on.local_accounts is false and no break-glass account can sign in: web apps do not start"
        )
        remedy = "set sign_on.local_accounts to true, set up a second factor, run `grader user break-glass`"
        yield failure("no_break_glass", name, message, remedy)
    for one in used:
        message = f"{one.name} signed in with a break-glass account at {one.at:%Y-%m-%d %H:%M} UTC"
        yield warning("break_glass_used", name, message, "make sure that this person did it")


def _tables(at: str | None) -> Finding:
    name, newest = "database tables", schema.newest_revision()
    match schema.fit_of(at):
        case "same":
            return ok(name, f"at revision {at}")
        case "older":
            message = f"at revision {at or 'none'}; this code needs {newest}"
            return failure("tables_older", name, message, UPGRADE)
        case "newer":
            message = f"at revision {at}, newer than this code ({newest}) but compatible"
            return warning("tables_newer", name, message, NEWER)
    message = f"at revision {at}, which is unknown to this code: another version of Grader created it"
    return failure("tables_unknown", name, message, NEWER)


def _fit(installation: Installation, facts: DatabaseFacts, file: Path | None) -> Iterator[Finding]:
    name = "database kind"
    slots = sum(machine.slots for machine in installation.config.machines)
    if not facts.durable:
        remedy = "set `fsync = on` and `synchronous_commit = on`" if file is None else "let SQLite use WAL"
        yield warning("database_not_durable", name, "commits can be lost at a power failure", remedy)
    if file is None:
        return
    if (system := _file_system(file)).startswith(NETWORK_DISKS):
        message = f"{file} is on a network disk ({system}), where SQLite loses data"
        yield failure(
            "database_on_network_disk", name, message, "put it on a disk of this computer, or use PostgreSQL"
        )
    elif slots > MANY_SLOTS:
        yield warning("sqlite_many_slots", name, f"SQLite has one writer for {slots} slots", "use PostgreSQL")
    else:
        yield ok(name, "SQLite, sufficient for one server")
    remedy = "free space, or move the database to another disk"
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
            message = f"the clock of {name} differs from the database's by {seconds:.0f} s"
            yield warning("clocks_differ", "clocks", message, "synchronize both clocks by NTP")
    if max(apart.values()) <= installation.bounds.clock_s:
        yield ok("clocks", f"differ by at most {max(apart.values()):.1f} s")


def _backup(installation: Installation, age_s: float | None, in_use_s: float) -> Finding:
    """A database in use for less than a day has missed no backup yet."""
    name = "backup"
    remedy = "run `grader backup --to-folder DIR` every night; "
    remedy += "docs/how-to/administrators/maintenance.md has the timer"
    if age_s is None and in_use_s <= installation.bounds.backup_s:
        return ok(name, "none yet; the database is new")
    if age_s is None:
        return warning("backup_never", name, "there is none", remedy)
    message = f"the newest is {age_s / 3600:.0f} hours old"
    if age_s > installation.bounds.backup_s:
        return warning("backup_old", name, message, remedy)
    return ok(name, message)


def _database_size(count: int, file: Path | None) -> Finding:
    """A back-up needs room for about twice the database's size; where PostgreSQL is, only its host knows."""
    name = "database size"
    free = shutil.disk_usage(file.parent).free if file is not None else None
    if free is not None and free < 2 * count:
        message = f"{size(count)}, with {size(free)} free on its disk: less than a backup needs"
        remedy = "free space, shorten [retention], or move it to a larger disk"
        return warning("database_large", name, message, remedy)
    return ok(name, size(count))


def _backlog(installation: Installation, now_open: Open) -> Iterator[Finding]:
    waiting = sum((w for (state, _), w in now_open.rounds.items() if state != "running"), Waiting(0, 0.0))
    count = counted(waiting.count, "submission")
    message = f"{count} queued, the oldest for {waiting.oldest_s / 60:.0f} min"
    if waiting.oldest_s > installation.bounds.backlog_s:
        yield warning("backlog_old", "backlog", message, "check the machines below; add slots or machines")
    else:
        yield ok("backlog", message if waiting.count else "the queues are empty")
    if dead := sum(now_open.dead.values()):
        message = f"{counted(dead, 'stage')} failed and will not be retried automatically"
        yield warning("dead_letters", "failed", message, "fix the cause, then run `grader replay`")
