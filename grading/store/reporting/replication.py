"""Replicas, slots and the archive of PostgreSQL's log, as the primary sees them; and each host's role."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import NullPool, create_engine, text
from sqlalchemy.exc import NotSupportedError, OperationalError, ProgrammingError

from grading.store.database import Store
from grading.store.failover import hosts_of, parse_url

BEHIND_BYTES = 64e6
"""A replica that is further behind is late: so much would be lost with the primary."""
KEPT_BYTES = 4e9
"""Log that is kept for a replica, from which on the primary's disk is in danger."""
_REPLICAS = text(
    "select application_name, state, sync_state, pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn) "
    "from pg_stat_replication order by application_name"
)
_SLOTS = text(
    "select slot_name, active, pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), wal_status "
    "from pg_replication_slots order by slot_name"
)
_ARCHIVE = text(
    "select current_setting('archive_mode') <> 'off', last_failed_wal, "
    "last_failed_time > coalesce(last_archived_time, '-infinity') from pg_stat_archiver"
)
_WAITS_FOR = text(
    "select case when current_setting('synchronous_commit') in ('off', 'local') then '' "
    "else current_setting('synchronous_standby_names') end"
)


@dataclass(frozen=True)
class Replica:
    """A server that follows; values are None where the database's user may not see them (`pg_monitor`)."""

    name: str
    state: str | None
    synchronous: bool
    behind_bytes: int | None


@dataclass(frozen=True)
class Slot:
    """What the primary keeps of its log for a replica."""

    name: str
    active: bool
    kept_bytes: int
    status: str
    """`reserved`, `extended`, `unreserved` or `lost`, as PostgreSQL says; empty before its first use."""

    @property
    def idle(self) -> bool:
        """Whether log is kept, or was, for a replica that is not connected."""
        return not self.active and self.status != ""

    @property
    def lost(self) -> bool:
        """Whether its replica needs a part of the log that is removed, or is next."""
        return self.status in ("unreserved", "lost")


@dataclass(frozen=True)
class Replication:
    """All of it."""

    replicas: tuple[Replica, ...]
    slots: tuple[Slot, ...]
    waits_for: str
    """The setting `synchronous_standby_names`; empty where a commit waits for no replica."""
    archives: bool
    failing: str
    """The piece of the log that could not be archived last, if none was archived since."""
    expected: int = 0
    """Replicas that the database's address names: all of its hosts but one."""

    @property
    def missing(self) -> int:
        """Replicas that are expected and not connected."""
        return max(0, self.expected - sum(one.state != "backup" for one in self.replicas))

    @property
    def blocked(self) -> bool:
        """Whether commits wait for a replica and none is there; not where the user may not see replicas."""
        return bool(self.waits_for) and not any(one.synchronous or one.state is None for one in self.replicas)

    @property
    def lags(self) -> dict[str, int]:
        """Bytes of log that a replica has not replayed, by its name; the most of those of one name."""
        known = [(one.behind_bytes, one.name) for one in self.replicas if one.behind_bytes is not None]
        return {name: behind for behind, name in sorted(known)}


def load_replication(store: Store) -> Replication | None:
    """Query the primary; nothing of SQLite, and of a service that hides it. Raises errors of SQLAlchemy."""
    if store.engine.dialect.name != "postgresql":
        return None
    try:
        return _load(store)
    except (NotSupportedError, ProgrammingError):
        return None


def _load(store: Store) -> Replication:
    with store.read() as session:
        replicas = tuple(
            Replica(name, state, sync in ("sync", "quorum"), None if behind is None else int(behind))
            for name, state, sync, behind in session.execute(_REPLICAS)
        )
        slots = tuple(
            Slot(name, active, int(kept or 0), status or "")
            for name, active, kept, status in session.execute(_SLOTS)
        )
        archives, piece, failed = session.execute(_ARCHIVE).one()
        failing = str(piece) if archives and failed else ""
        waits_for = session.execute(_WAITS_FOR).scalar_one()
        expected = len(hosts_of(parse_url(store.url))) - 1
        return Replication(replicas, slots, waits_for, archives, failing, expected)


def roles_of_hosts(address: str) -> dict[str, str]:
    """`primary`, `replica` or `away` for each host of an address that names several; else nothing."""
    url = parse_url(address)
    hosts = hosts_of(url) if url.get_backend_name() == "postgresql" else []
    if len(hosts) < 2:
        return {}
    found = {}
    for host, port in hosts:
        one = {"host": host, "port": port, "target_session_attrs": "any", "connect_timeout": "3"}
        engine = create_engine(url.update_query_dict(one), poolclass=NullPool, hide_parameters=True)
        try:
            with engine.connect() as connection:
                follows = connection.execute(text("select pg_is_in_recovery()")).scalar_one()
            found[f"{host}:{port}"] = "replica" if follows else "primary"
        except OperationalError:
            found[f"{host}:{port}"] = "away"
    return found
