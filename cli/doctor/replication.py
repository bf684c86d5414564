"""PostgreSQL with a successor: roles of the hosts, lag, slots that keep the log, its archive."""

from __future__ import annotations

from collections.abc import Iterator

from cli.doctor.finding import Bounds, Finding, Installation, failure, ok, size, warning
from grading.store import Store
from grading.store.reporting.replication import Replica, Replication, Slot, load_replication, roles_of_hosts

HOW_TO = "docs/how-to/administrators/postgresql.md"


def diagnose_replication(installation: Installation, store: Store) -> Iterator[Finding]:
    """All of it; nothing where one server without replicas and archive is used."""
    found = load_replication(store)
    if found is not None:
        yield from _look(installation.bounds, found, roles_of_hosts(installation.config.database.url))


def _look(bounds: Bounds, found: Replication, roles: dict[str, str]) -> Iterator[Finding]:
    yield from _roles(roles)
    if roles or found.replicas or found.waits_for:
        yield from _replicas(bounds, found)
    yield from (_slot(bounds, one) for one in found.slots)
    if found.archives:
        yield _archive(found)


def _roles(roles: dict[str, str]) -> Iterator[Finding]:
    if not roles:
        return
    name, message = "database hosts", ", ".join(f"{host} is {role}" for host, role in roles.items())
    message = message.replace("is primary", "is the primary").replace("is replica", "is a replica")
    if sum(role == "primary" for role in roles.values()) > 1:
        remedy = f"stop the old primary at once, then rewind it ({HOW_TO})"
        yield failure("database_two_primaries", name, message, remedy)
    elif "away" in roles.values():
        yield warning("database_host_away", name, message, f"start it, or rewind it ({HOW_TO})")
    else:
        yield ok(name, message)


def _replicas(bounds: Bounds, found: Replication) -> Iterator[Finding]:
    if not found.replicas:
        message = "none follows the primary"
        remedy = f"start the replica; {HOW_TO} says how to make it again"
        if found.waits_for:
            message += ", and commits wait for one: nothing can be stored"
            remedy += " and how to stop waiting for it"
            yield failure("replica_waited_for", "replica", message, remedy)
        else:
            yield warning("replica_missing", "replica", message, remedy)
    for one in found.replicas:
        yield _replica(bounds, one)


def _replica(bounds: Bounds, one: Replica) -> Finding:
    name = f"replica {one.name}"
    if one.state is None or one.behind_bytes is None:
        remedy = "as PostgreSQL's administrator: `GRANT pg_monitor TO grader`"
        return warning("replica_hidden", name, "the database's user cannot read its position", remedy)
    how = "synchronous" if one.synchronous else "asynchronous"
    message = f"{how}, {one.state}, {size(one.behind_bytes)} behind"
    if one.state != "streaming" or one.behind_bytes > bounds.replica_bytes:
        return warning("replica_behind", name, message, "check its disk, its load and the network to it")
    return ok(name, message)


def _slot(bounds: Bounds, one: Slot) -> Finding:
    name, message = f"replication slot {one.name}", f"keeps {size(one.kept_bytes)} of the log"
    if one.lost:
        message = "its replica needs a part of the log that is removed"
        return failure("slot_lost", name, message, f"make the replica again ({HOW_TO})")
    if one.idle or one.kept_bytes > bounds.slot_bytes:
        remedy = f"start its replica, or drop it: `SELECT pg_drop_replication_slot('{one.name}')`"
        return warning("slot_keeps_log", name, message + ("" if one.active else " for nobody"), remedy)
    return ok(name, message)


def _archive(found: Replication) -> Finding:
    name = "log archive"
    if found.failing:
        message = f"{found.failing} could not be archived: the log fills the disk"
        remedy = "see PostgreSQL's log for the reason, and `pgbackrest --stanza=grader check`"
        return failure("archive_failing", name, message, remedy)
    return ok(name, "the last piece was archived")
