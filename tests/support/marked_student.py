"""A student whose everything can be found again: in rows, files and messages."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from sqlalchemy import select

from grading.documents import SubmittedFiles, UploadedFile
from grading.domain.document import Cell, Document, Output
from grading.store import Store
from grading.store.accounts import users
from grading.store.assignments import versions
from grading.store.audit import write_audit
from grading.store.database import now
from grading.store.learning_platforms import all_tables
from grading.store.submissions.intake import Idempotency, IncomingSubmission, accept_submission
from grading.store.tables import (
    CachedExecution,
    InboundWebhook,
    Outbox,
)
from tests.support.factories import COURSE

CANARY = "zqkanari"
"""Part of everything that is planted, and of nothing else."""


def planted(store: Store, assignment: int) -> int:
    """A student whose name, ids, files and outputs are canaries, with one submission; the user's id."""
    with store.write() as session:
        course = versions.find_or_create_course(session, COURSE).id
        user = users.create_user(
            session, f"{CANARY}-id", name=f"{CANARY} name", email=f"{CANARY}@mail.invalid"
        )
        users.enrol(session, user.id, course, "student")
        users.create_token(session, user.id, f"{CANARY} token", ["read"], timedelta(days=1))
        write_audit(session, user.name, "sign_in", f"user:{user.id}", {"as": [f"{CANARY}-id"], "x": "kept"})
        write_audit(session, "system", "mail", "course:1", {"text": f"to {CANARY}@mail.invalid, sent"})
    submit_canaries(store, assignment, user.id)
    return user.id


def submit_canaries(store: Store, assignment: int, user_id: int) -> None:
    cell = Cell(
        number=1,
        kind="code",
        source=f"# {CANARY} comment\nx <- 1",
        language="r",
        added=(1, 2),
        outputs=(Output(kind="stream", text=f"{CANARY} output"),),
    )
    document = Document(path=f"{CANARY}.R", kind="script", language="r", cells=(cell,))
    files = (
        UploadedFile(f"{CANARY}.R", f"# {CANARY} comment\nx <- 1".encode()),
        UploadedFile("shared.csv", b"the data that all have"),
    )
    with store.write() as session:
        incoming = IncomingSubmission(
            assignment, user_id, "api", SubmittedFiles(files, (document,), (f"{CANARY} note",)),
            submitted_by=user_id, idempotency=Idempotency(f"user:{user_id}", f"{CANARY} key", "0" * 64),
        )  # fmt: skip
        accepted = accept_submission(session, incoming)
        session.add(
            InboundWebhook(
                connection="lms", message_id=f"{CANARY} message", body_hash="0" * 64,
                submission_id=accepted.submission_id, received_at=now(session),
            )
        )  # fmt: skip
        execution = {
            "end": "finished",
            "cells": [{"number": 1, "state": "ran", "error": f"{CANARY} printed"}],
        }
        session.add(
            CachedExecution(
                key=accepted.submission_id * 2, submission_id=accepted.submission_id, content=execution,
                created_at=now(session),
            )
        )  # fmt: skip
        payload = {"about": accepted.round_id, "text": f"{CANARY} payload"}
        moment = now(session)
        session.add(
            Outbox(kind="mail", key=f"{CANARY}", payload=payload, created_at=moment, not_before=moment)
        )


def other(store: Store, assignment: int) -> str:
    """Another student's submission with one file that the first has, too."""
    with store.write() as session:
        course = versions.find_or_create_course(session, COURSE).id
        user = users.find_or_create_student(session, "local", "ben", "Ben, who is another", "", course)
        files = (UploadedFile("shared.csv", b"the data that all have"), UploadedFile("b.R", b"y <- 2"))
        cell = Cell(number=1, kind="code", source="y <- 2", language="r", added=(1,))
        document = Document(path="b.R", kind="script", language="r", cells=(cell,))
        return accept_submission(
            session, IncomingSubmission(assignment, user.id, "api", SubmittedFiles(files, (document,), ()))
        ).submission_id


def hits(store: Store) -> dict[str, int]:
    """Rows with a canary in any column, by table."""
    found = {}
    with store.read() as session:
        for table in all_tables().sorted_tables:
            rows = [row for row in session.execute(select(table)) if CANARY in repr(readable(row)).lower()]
            if rows:
                found[table.name] = len(rows)
    return found


def readable(row: Iterable[Any]) -> list[Any]:
    """The values of a row, unpacked where they are compressed."""
    packed = b"x\x9c"
    return [zlib.decompress(one) if isinstance(one, bytes) and one.startswith(packed) else one for one in row]
