"""A school in which two courses have one of everything, for asking every route in every role."""

from __future__ import annotations

import base64
import io
import json
import sqlite3
import zipfile
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from flask.testing import FlaskClient
from sqlalchemy import event
from werkzeug.routing import Rule

from grading.documents import UploadedFile, read
from grading.domain.jobs import SentPrompt
from grading.domain.permissions import Actor
from grading.store import blobs, tables
from grading.store.accounts import users
from grading.store.database import now
from grading.store.integrations.lti import registrations
from grading.store.submissions import class_uploads, pending_uploads
from tests.integration.web.pages_expected import ROLES
from tests.integration.webapp import School, form_token, report

EVERYBODY = (*ROLES[:3], "mate", *ROLES[3:], "admin")
NOBODY_KNOWS = 987654321
SAFE = {"GET", "HEAD", "OPTIONS"}
SCOPED = ("read", "submit", "grade", "manage")
"""What the tokens may that ask the API."""
Ids = dict[str, tuple[Any, Any, Any]]
NO_IDS = {
    # arguments of routes that name nothing anybody owns, with a value that exists
    "connection": "canvas",
    "criterion": "load",
    "group": "0" * 32,
    "item": "0" * 32,
    "platform_id": 1,
    "context_id": 1,
    "secret_id": 1,
    "name": "none",
    "identity_id": 1,
    "launch_id": "0" * 32,
    "ticket": "none",
    "kind": "submission.created",
    "receiver": "lms",
    "key": "test:none",
    "plot": "scores",
    "machine": "dgx-spark-1",
    "stage": "analysis",
    "path": "data/a.csv",
    "file_path": "work.ipynb",
    "document": 0,
    "cell": 1,
    "number": 0,
    "version_number": 1,
    "draft_id": "0" * 32,
    "other_id": "0" * 32,
}


@dataclass
class World:
    """The school and its ids, with a way back to how it was."""

    school: School
    file: Path
    ids: Ids = field(default_factory=dict)
    """What each argument of a route is called: `teacher`'s course's, the other course's, nobody's."""
    signed_in: dict[str, tuple[FlaskClient, str, str]] = field(default_factory=dict)
    """A browser, its cookie at the beginning and its CSRF token."""
    bearers: dict[str, dict[str, str]] = field(default_factory=dict)

    def keep(self) -> None:
        """Remember how it is."""
        _copy(self.file, self.file.with_suffix(".kept"))

    def back(self) -> None:
        """As it was kept."""
        _copy(self.file.with_suffix(".kept"), self.file)

    def client(self, role: str) -> tuple[FlaskClient, str]:
        """A browser as it was after signing in, and its CSRF token."""
        if role not in self.signed_in:
            client = self.school.client(None if role == "nobody" else role)
            token = form_token(client, "/sign-in")
            cookie = client.get_cookie("grader")
            assert cookie is not None
            self.signed_in[role] = client, cookie.value, token
        client, value, token = self.signed_in[role]
        client.set_cookie("grader", value)
        return client, token

    def url(self, rule: Rule, values: Mapping[str, Any]) -> str:
        """The address of a route, for these of its arguments."""
        addresses = self.school.app.url_map.bind("localhost")
        return addresses.build(rule.endpoint, {k: values[k] for k in rule.arguments})

    def ask(self, role: str, method: str, rule: Rule, values: Mapping[str, Any]) -> int:
        """What the route answers to this role; whatever that changed is undone."""
        client, token = self.client(role)
        headers = self.bearers.get(role, {}) if rule.endpoint.startswith("api.") else {}
        sent: dict[str, Any] = {} if method in SAFE else {"data": {"csrf_token": token}}
        if rule.endpoint.startswith("api.") and rule.endpoint != "api.submit" and sent:
            sent, headers = {"json": {}}, {**headers, "If-Match": "*"}
        answer = client.open(self.url(rule, values), method=method, headers=headers, **sent)
        answer.close()
        if method not in SAFE and answer.status_code < 400:
            self.back()
        return answer.status_code


def build(place: Path) -> World:
    """The world, as it is at the beginning."""
    made = World(School(place, uploads_per_minute=100_000, api_per_minute=10_000_000), place / "grader.db")
    event.listen(made.school.store.engine, "connect", _hasty)
    made.school.store.close()
    made.ids = ids_of(made.school)
    made.bearers = {name: made.school.token(name, *SCOPED) for name in EVERYBODY[1:]}
    for name in EVERYBODY:
        made.client(name)  # their sessions are part of how it is
    made.keep()
    return made


def _hasty(connection: sqlite3.Connection, _record: object) -> None:
    connection.execute("PRAGMA synchronous=OFF")


def _copy(one: Path, other: Path) -> None:
    """The content of a database, also while it is open elsewhere."""
    with closing(sqlite3.connect(one)) as source, closing(sqlite3.connect(other)) as target:
        source.backup(target)


def ids_of(school: School) -> Ids:
    """What each argument is called, of a school that is filled for it."""
    with school.store.write() as session:
        new = registrations.NewPlatform(
            "LMS", "https://lms.example", "c", "https://lms.example/a", "https://lms.example/t",
            "https://lms.example/k",
        )  # fmt: skip
        registrations.register_platform(session, new, "test")
        for name in ("mate", "far"):
            school.users[name] = users.create_user(session, name, name=name.capitalize()).id
        other = session.get_one(tables.Assignment, school.elsewhere).course_id
        users.enrol(session, school.users["mate"], school.course, "student")
        users.enrol(session, school.users["far"], other, "student")
    here = _things(school, school.course, ("anna", "mate", "teacher"), school.assignment)
    there = _things(school, other, ("far", "stranger", "stranger"), school.elsewhere)
    ids: Ids = {
        name: (here[name], there[name], "0" * 32 if isinstance(here[name], str) else NOBODY_KNOWS)
        for name in here
    }
    return {**ids, **{name: (same, same, same) for name, same in NO_IDS.items()}}


def _things(
    school: School, course: int, people: tuple[str, str, str], assignment: int
) -> dict[str, int | str]:
    """One of everything of a student (the first of `people`), by the names routes give their arguments."""
    user, mate, by = (school.users[one] for one in people)
    submission = school.submit(people[0], assignment, NOTEBOOK, "work.ipynb")
    school.grade(submission, report(), released=True)
    run = school.ran(submission, "analysis", SentPrompt(system="s", user="u"))
    with school.store.write() as session:
        moment = now(session)
        round_ = session.query(tables.Round).filter_by(submission_id=submission).one()
        version = session.query(tables.RubricVersion).filter_by(assignment_id=assignment).one()
        version.files = {"data/a.csv": blobs.store_blobs(session, [b"a,b\n"])[0]}
        work: dict[str, Any] = {"round_id": round_.id, "submission_id": submission}
        made: dict[str, Any] = {"by": by, "at": moment}
        group = {"assignment_id": assignment, "group_id": f"{course:032x}"}
        change = tables.Change(kind="adjust", value={"points": 1}, before={}, **work, **made)
        mark = tables.Mark(criterion="load", level=2, **work, **made)
        example = tables.Example(
            assignment_id=assignment,
            submission_id=submission,
            criterion="load",
            excerpt="x",
            level=2,
            **made,
        )
        request = tables.RegradeRequest(
            student_id=user, course_id=course, reason="please", created_at=moment, **work
        )
        sent = tables.SentMessage(
            receiver="lms", message_id="msg_1", event=f"received:{submission}", type="submission.received",
            submission_id=submission, attempt=1, at=moment, seconds=0.1, url="https://lms.example/",
            headers={"webhook-id": "msg_1"}, body="{}", status=500, error="answered 500", answer="no",
        )  # fmt: skip
        told = {"kind": "to:lms", "key": f"received:{submission}", "payload": {}}
        session.add(tables.Outbox(**told, created_at=moment, not_before=moment))
        session.merge(
            tables.EventReceiver(name="lms", mark="m", failures=9, failing_since=moment, paused_at=moment)
        )
        comment = tables.SavedComment(course_id=course, text="well done", **made)
        dry = tables.DryRun(assignment_id=assignment, rubric_version_id=version.id, by=by, created_at=moment)
        due = moment + timedelta(days=1)
        stress_test = tables.StressTest(
            assignment_id=assignment, rubric_version_id=version.id, by=by, seed=1, created_at=moment
        )
        trial = tables.ModelTrial(
            assignment_id=assignment, stage="analysis", engine="r", model="r", by=by, created_at=moment
        )
        session.add_all([change, mark, example, request, comment, dry, sent, stress_test, trial])
        session.add_all(
            [
                tables.SubmissionMember(submission_id=submission, user_id=mate),
                tables.GroupMember(user_id=user, **group),
                tables.GroupMember(user_id=mate, **group),
                tables.Extension(assignment_id=assignment, student_id=user, due_at=due, **made),
            ]
        )
        session.flush()
        token = users.create_token(session, user, "t", ("read",), timedelta(days=1))
        content = read([UploadedFile("work.py", b"x = 1\n")])
        found = session.get_one(tables.Assignment, assignment)
        found.code_editor = True
        upload = pending_uploads.save_upload(
            session, assignment, user, content, pending_uploads.read_upload(session, found, content), ""
        )
        batch = class_uploads.create_class_upload(session, assignment, Actor(by), "class.zip", _class_zip())
        return {
            "course_id": course,
            "assignment_id": assignment,
            "submission_id": submission,
            "id": submission,
            "round_id": round_.id,
            "run_id": run,
            "batch_id": batch,
            "upload_id": upload,
            "token_id": token.id,
            "user_id": user,
            "student_id": user,
            "version_id": version.id,
            "change_id": change.id,
            "mark_id": mark.id,
            "example_id": example.id,
            "request_id": request.id,
            "comment_id": comment.id,
            "dry_run_id": dry.id,
            "stress_test_id": stress_test.id,
            "trial_id": trial.id,
            "delivery_id": sent.id,
            "group_id": str(group["group_id"]),
        }


def _class_zip() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("anna_work.py", "x = 1\n")
    return packed.getvalue()


def _notebook() -> bytes:
    """With one picture in its outputs, of a single point."""
    point = base64.b64decode(
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    )
    data = {"image/png": base64.b64encode(point).decode()}
    outputs = [{"output_type": "display_data", "metadata": {}, "data": data}]
    cell = {
        "cell_type": "code",
        "metadata": {},
        "execution_count": 1,
        "source": "plot()",
        "outputs": outputs,
    }
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [cell]}).encode()


NOTEBOOK = _notebook()
