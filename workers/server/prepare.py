"""From a stored hand-in to what its jobs carry: own work set apart, evidence, no names."""

from __future__ import annotations

import logging
from typing import Any

from pydantic import ValidationError
from sqlalchemy import select
from sqlalchemy.exc import DataError
from sqlalchemy.orm import Session

from grading.documents import Identity, pseudonymise, set_apart
from grading.errors import GraderError
from grading.evidence import collect
from grading.logs import working_on
from grading.model import Document, Evidence, RoundState
from grading.rubric import Value
from grading.store import rounds
from grading.store.tables import Round, Submission, User
from grading.tracing import span
from workers.server.context import Server
from workers.server.names import hide_names
from workers.server.versions import DOCUMENTS, Version

log = logging.getLogger(__name__)
UNEXPECTED = "This hand-in could not be examined: the checks failed on it. A person must look at it."


class Prepared(Value):
    """A round made ready: what machines get, without names, and the evidence as reports show it."""

    documents: tuple[Document, ...]
    """Without names; also in paths."""
    hidden_evidence: Evidence
    evidence: Evidence
    paths: dict[str, str]
    """The path a document is sent under -> its own."""


def prepare(server: Server, round_id: str) -> bool:
    """Compute the evidence of a received round and queue it. False when there was nothing to do.

    Whatever cannot be prepared ends the round: the checks give the same each time they look.
    """
    with working_on(round=round_id), span("prepare", round_id):
        done = _prepare_round(server, round_id)
        if done:
            log.info("round %s is queued", round_id)
        return done


def _prepare_round(server: Server, round_id: str) -> bool:
    try:
        with server.store.read() as session:
            found = _load(server, session, round_id)
        if found is None:
            return False
        content = _content(*found)
        with server.store.write() as session:
            return rounds.save_prepared(session, round_id, content)
    except GraderError as error:
        sentence = error.message
    except (_ChecksFailed, ValidationError, DataError):
        log.exception("round %s cannot be prepared", round_id)
        sentence = UNEXPECTED
    with server.store.write() as session:
        rounds.reject(session, round_id, sentence)
    return False


class _ChecksFailed(Exception):
    """The checks raised what they should not."""


def _content(version: Version, documents: tuple[Document, ...], identity: Identity) -> dict[str, Any]:
    try:
        return _prepare(version, documents, identity).model_dump(mode="json")
    except GraderError:
        raise
    except Exception as error:  # one hand-in must not stop the sweeper, nor wait for ever
        raise _ChecksFailed from error


def _prepare(version: Version, documents: tuple[Document, ...], identity: Identity) -> Prepared:
    own = set_apart(documents, version.starter)
    evidence = collect(own, version.rubric, version.solution)
    sent = pseudonymise(own, identity)
    names = {mine.path: other.path for mine, other in zip(own, sent, strict=True)}
    return Prepared(
        documents=sent,
        hidden_evidence=hide_names(evidence, identity, names),
        evidence=evidence,
        paths={other: mine for mine, other in names.items()},
    )


def _load(
    server: Server, session: Session, round_id: str
) -> tuple[Version, tuple[Document, ...], Identity] | None:
    row = session.execute(
        select(Round.rubric_version_id, Submission.documents, Submission.student_id)
        .join(Submission, Submission.id == Round.submission_id)
        .where(Round.id == round_id, Round.state == RoundState.RECEIVED)
    ).one_or_none()
    if row is None:
        return None
    version = server.versions.get(session, row.rubric_version_id)
    return version, DOCUMENTS.validate_python(row.documents), identity_of(session, row.student_id)


def identity_of(session: Session, student_id: int) -> Identity:
    """The names, ids and addresses that must not leave the server."""
    user = session.get_one(User, student_id)
    subjects = [identity.subject for identity in user.identities]
    return Identity(
        names=(user.name,) if user.name else (),
        ids=tuple(s for s in subjects if "@" not in s),
        emails=tuple(e for e in (user.email, *(s for s in subjects if "@" in s)) if e),
    )
