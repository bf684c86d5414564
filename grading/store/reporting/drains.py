"""Machines that an operator took out of service: they finish what they have and get nothing new."""

from __future__ import annotations

from functools import cache

from sqlalchemy import Select, delete, select
from sqlalchemy.orm import Session

from grading.store import audit
from grading.store.database import now
from grading.store.tables import Drain


def drained(session: Session) -> dict[str, str]:
    """Names of the machines that are out, each with the reason."""
    return {row.machine: row.why for row in session.execute(_drained())}


@cache
def _drained() -> Select[str, str]:
    return select(Drain.machine, Drain.why).order_by(Drain.machine)


def drain(session: Session, machine: str, by: str, why: str) -> None:
    """Take a machine out; doing it again changes the reason."""
    known = session.get(Drain, machine)
    if known is None:
        session.add(Drain(machine=machine, by=by, why=why[:200], since=now(session)))
    else:
        known.why = why[:200]
    audit.note(session, by, "machine.drain", f"machine:{machine}", {"why": why[:200]})


def undrain(session: Session, machine: str, by: str) -> bool:
    """Take a machine in again. False when it was not out."""
    gone = session.execute(delete(Drain).where(Drain.machine == machine).returning(Drain.machine)).first()
    if gone is None:
        return False
    audit.note(session, by, "machine.undrain", f"machine:{machine}")
    return True


def put(session: Session, machine: str, by: str, *, out: bool, why: str = "") -> dict[str, str]:
    """Take a machine out, or in again; all that are out then, for `Dispatch.tell_out`."""
    if out:
        drain(session, machine, by, why)
    else:
        undrain(session, machine, by)
    return drained(session)
