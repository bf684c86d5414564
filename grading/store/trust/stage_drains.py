"""Stages that a machine does no more, while it does its others: by an operator, or by an alarm of parity."""

from __future__ import annotations

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from grading.domain.messages import Message
from grading.store.audit import write_audit
from grading.store.database import now
from grading.store.tables import ParityAlarm, StageDrain


def list_drains(session: Session) -> dict[tuple[str, str], StageDrain]:
    """Machine and stage -> why the machine does it no more, and since when."""
    found = session.scalars(select(StageDrain).order_by(StageDrain.machine, StageDrain.stage))
    return {(one.machine, one.stage): one for one in found}


def stages_out(session: Session, machine: str) -> frozenset[str]:
    """The stages that a machine does no more."""
    return frozenset(session.scalars(select(StageDrain.stage).where(StageDrain.machine == machine)))


def drain_stage(session: Session, machine: str, stage: str, by: str, why: Message) -> None:
    """Take a machine out of one stage; again: nothing."""
    if session.get(StageDrain, (machine, stage)) is not None:
        return
    session.add(StageDrain(machine=machine, stage=stage, by=by, why=why, since=now(session)))
    detail = {"stage": stage, "why": why.message}
    write_audit(session, by, "machine.drain_stage", f"machine:{machine}", detail)


def undrain_stage(session: Session, machine: str, stage: str, by: str) -> bool:
    """Put a machine back into a stage, and end its alarms there. False when there is neither."""
    mine = (StageDrain.machine == machine, StageDrain.stage == stage)
    gone = session.execute(delete(StageDrain).where(*mine).returning(StageDrain.machine)).first()
    alarms = update(ParityAlarm).where(
        ParityAlarm.machine == machine, ParityAlarm.stage == stage, ParityAlarm.ended_at.is_(None)
    )
    ended = session.execute(alarms.values(ended_at=now(session)).returning(ParityAlarm.id)).first()
    if gone is None and ended is None:
        return False
    write_audit(session, by, "machine.undrain_stage", f"machine:{machine}", {"stage": stage})
    return True
