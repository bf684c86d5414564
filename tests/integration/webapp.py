"""A small school for tests of the web app: two courses, six people, a fake dispatch."""

from __future__ import annotations

import re
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache, cached_property
from html import unescape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar
from unittest.mock import patch

import pytest
from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import inspect
from sqlalchemy.orm import Session
from werkzeug.routing import Rule
from werkzeug.test import TestResponse

from app import Services, create_app
from app.web.auth import SignedIn
from grading.broker.canaries import PartHeartbeat
from grading.broker.heartbeats import Lease
from grading.broker.machine_status import MachineState
from grading.config.settings import Config, parse
from grading.documents import UploadedFile, read
from grading.documents.limits import Limits
from grading.domain.document import Location
from grading.domain.evidence import CheckOutcome, Flag
from grading.domain.jobs import Finding, Judgement, Provenance, Result, SentPrompt, Suggestion, Tokens
from grading.domain.report import CriterionGrade, Report
from grading.domain.round_states import RoundState
from grading.domain.rubric import Criterion, Rubric
from grading.domain.stages import AnalysisOutput, FeedbackOutput
from grading.store import Store, tables
from grading.store.accounts import sessions
from grading.store.accounts import users as user_accounts
from grading.store.assignments import versions
from grading.store.assignments.versions import NewVersion
from grading.store.database import now
from grading.store.learning_platforms import all_tables
from grading.store.rounds import prompts
from grading.store.submissions import intake
from grading.store.submissions.intake import IncomingSubmission
from tests.support import shared_templates

PEOPLE = ("admin", "teacher", "grader", "anna", "ben", "stranger")
SECRET = "whsec_" + "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="
CODE = b"import pandas as pd\n\nsales = pd.read_csv('sales.csv')\nprint(sales.head())\n"


@dataclass
class FakeDispatch:
    """Records what was announced; leases and machines are what a test sets."""

    announced: list[str] = field(default_factory=list)
    held: dict[str, Lease] = field(default_factory=dict)
    away: bool = False
    refused: bool = False
    able: tuple[str, ...] = ("analysis", "feedback")
    out: tuple[str, ...] = ()
    released: int = 0
    viewers: dict[str, list[int]] = field(default_factory=dict)

    claims: dict[str, int] = field(default_factory=dict)
    """Submission -> who grades it now by whatever criterion."""

    def announce(self, round_id: str) -> bool:
        self.announced.append(round_id)
        return not self.away

    def announce_precheck(self, precheck_id: str) -> bool:
        self.announced.append(precheck_id)
        return not self.away

    def leases(self, run_ids: Sequence[str]) -> dict[str, Lease]:
        return {run: self.held[run] for run in run_ids if run in self.held}

    def machines(self) -> list[MachineState]:
        stages = {stage: {"engine": "rules", "model": "rules"} for stage in self.able}
        return [
            MachineState(
                "dgx-spark-1", "primary", 8, stages, alive=not self.away, busy=3, heartbeat_age_s=1.0
            ),
            MachineState("mac-studio-1", "primary", 8, stages),
        ]

    def tell_out(self, machines: Iterable[str]) -> bool:
        self.out = tuple(machines)
        return not self.away

    def release(self) -> bool:
        self.released += 1
        return not self.away

    def backlog(self) -> dict[str, int] | None:
        return None if self.away else {"analysis": 2, "store": 0}

    def clock(self) -> float | None:
        return None if self.away else time.time()

    def view(self, submission_id: str, user_id: int) -> tuple[int, ...]:
        seen = self.viewers.setdefault(submission_id, [])
        seen[:] = [*(one for one in seen if one != user_id), user_id]
        return tuple(seen[:-1])

    def claim_criterion(
        self, assignment_id: int, criterion: str, user_id: int, submissions: Sequence[str]
    ) -> str | None:
        free = (one for one in submissions if self.claims.get(one, user_id) == user_id)
        if (found := next(free, None)) is not None:
            self.claims = {one: by for one, by in self.claims.items() if by != user_id} | {found: user_id}
        return found

    def password_refused(self) -> bool:
        return self.refused

    def parts(self) -> list[PartHeartbeat]:
        return (
            []
            if self.away
            else [PartHeartbeat("sweeper", "host:1", "", 4.0), PartHeartbeat("sweeper", "host:2", "", 2.0)]
        )


def stop_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tries to sign in: only `clock_offset_s` moves it, however slow the tests are."""
    moment = datetime.now(UTC)

    def still(session: Session) -> datetime:
        return moment + timedelta(seconds=session.info["offset"])

    monkeypatch.setattr("grading.store.accounts.sign_in_attempts.now", still)


def configuration(**server: Any) -> Config:
    stages = {
        "analysis": {"engine": "rules", "model": "qwen3-coder:30b"},
        "feedback": {"engine": "rules", "model": "gemma-3-27b"},
    }
    return parse(
        {
            "server": {"max_upload_mb": 2, "lms_connections": {"canvas": ["ba", "gone"]}, **server},
            "machines": [{"name": "dgx-spark-1", "stages": stages}],
        }
    )


def begin(store: Store) -> None:
    """The tables, six people and three assignments in two courses, in an empty database."""
    all_tables().create_all(store.engine)
    with store.write() as session:
        users = {name: user_accounts.create_user(session, name, name=name.capitalize()) for name in PEOPLE}
        users["admin"].administrator = True
        _assignment(session, "ba", "hw1", "after_review")
        _assignment(session, "ba", "quick", "at_once")
        _assignment(session, "other", "hw1", "after_review")
        ba, other = (versions.find_or_create_course(session, slug).id for slug in ("ba", "other"))
        for name, role in (
            ("teacher", "instructor"),
            ("grader", "grader"),
            ("anna", "student"),
            ("ben", "student"),
        ):
            user_accounts.enrol(session, users[name].id, ba, role)
        user_accounts.enrol(session, users["stranger"].id, other, "instructor")


def _assignment(session: Session, course: str, slug: str, release: str) -> None:
    rubric = Rubric(
        criteria=(
            Criterion(id="load", title="Loads the data", points=4),
            Criterion(id="think", title="Thinks about it", points=6, stage="feedback"),
        )
    )
    new = NewVersion(slug, f"Homework {slug}", "python", release, f"d-{course}-{slug}", rubric)
    versions.import_version(session, course, new)


def prepare(url: str) -> None:
    """The same at a URL, for databases that are copied."""
    store = Store(url)
    begin(store)
    store.close()


@cache
def _beginning() -> bytes:
    """A SQLite file as `begin` leaves it: made once, then copied, for hundreds of tests begin with it."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "grader.db"
        prepare(f"sqlite:///{path}")
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return path.read_bytes()


def _copy_of_the_beginning(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.write_bytes(_beginning())


def _has_begun(store: Store) -> bool:
    if not inspect(store.engine).has_table("users"):
        return False
    with store.read() as session:
        return session.query(tables.User.id).first() is not None


class _CompiledOnce(Rule):
    """A route that is compiled once for the apps of all tests: that is most of the work of making one."""

    compiled: ClassVar[dict[tuple[Any, ...], dict[str, Any]]] = {}

    def compile(self) -> None:
        key = (self.rule, self.endpoint, self.subdomain, repr(self.defaults), str(sorted(self.methods or ())))
        if key not in self.compiled:
            super().compile()
            self.compiled[key] = {name: value for name, value in vars(self).items() if name != "map"}
        vars(self).update(self.compiled[key])


def make_app(services: Services) -> Flask:
    """The app with routes and templates that are compiled once for all tests."""
    with patch.object(Flask, "url_rule_class", _CompiledOnce):
        made = create_app(services)
    made.jinja_env.bytecode_cache = shared_templates.installed()
    return made


class School:
    """A store with people and assignments, and the app on it."""

    def __init__(self, place: Path | str, **server: Any) -> None:
        url = place if isinstance(place, str) else f"sqlite:///{place / 'grader.db'}"
        if url.startswith("sqlite:///"):
            _copy_of_the_beginning(Path(url.removeprefix("sqlite:///")))
        self.store = Store(url)
        if not _has_begun(self.store):
            begin(self.store)
        self.dispatch = FakeDispatch()
        with self.store.read() as session:
            people = session.query(tables.Identity.subject, tables.Identity.user_id)
            self.users: dict[str, int] = {one.subject: one.user_id for one in people}
            found = session.query(tables.Course.slug, tables.Assignment.slug, tables.Assignment.id)
            ids = {(course, slug): id_ for course, slug, id_ in found.join(tables.Assignment.course)}
            self.course = versions.find_or_create_course(session, "ba").id
        self.assignment, self.quick = ids["ba", "hw1"], ids["ba", "quick"]
        self.elsewhere = ids["other", "hw1"]
        self.services = Services(
            config=configuration(**server),
            store=self.store,
            dispatch=self.dispatch,
            secret_key="only for tests",
            lms_secrets={"canvas": (SECRET,)},
        )

    @cached_property
    def app(self) -> Flask:
        """The app, made when first asked for."""
        return make_app(self.services)

    def client(self, name: str | None = None) -> FlaskClient:
        """A browser, signed in as somebody without the slow password."""
        client = self.app.test_client()
        if name is not None:
            with self.store.write() as session, client.session_transaction() as cookie:
                found = user_accounts.load_reader(session, self.users[name])
                assert found is not None, f"{name} may not sign in"
                cookie["_user_id"] = SignedIn(
                    found, sessions.create_session(session, self.users[name])
                ).get_id()
                cookie["_fresh"] = True
                cookie["csrf_token"] = f"{self.users[name]}.{secrets.token_hex(20)}"  # as `auth` gives it
        return client

    def token(self, name: str, *scopes: str) -> dict[str, str]:
        """The header of a new token."""
        with self.store.write() as session:
            made = user_accounts.create_token(
                session, self.users[name], "t", scopes or ("read", "submit"), timedelta(days=1)
            )
        return {"Authorization": f"Bearer {made.secret}"}

    def submit(
        self, who: str, assignment: int | None = None, data: bytes = CODE, name: str = "work.py"
    ) -> str:
        """A submission of somebody; its id."""
        content = read([UploadedFile(name, data)], Limits())
        incoming = IncomingSubmission(assignment or self.assignment, self.users[who], "form", content)
        with self.store.write() as session:
            return intake.accept_submission(session, incoming).submission_id

    def grade(self, submission_id: str, report: Report, *, released: bool = False) -> None:
        """Finish the current round with this report."""
        with self.store.write() as session:
            round_ = session.query(tables.Round).filter_by(submission_id=submission_id, current=True).one()
            round_.state, round_.finished_at = report.status.value, now(session)
            for stage in round_.stages:
                stage.state = "done" if stage.stage in report.stages else "dead"
            session.add(
                tables.Grade(
                    round_id=round_.id,
                    submission_id=submission_id,
                    points=report.points,
                    points_so_far=report.points_so_far,
                    final_points=report.points,
                    max_points=report.max_points,
                    held=report.held,
                    report=report.model_dump(mode="json"),
                    created_at=now(session),
                    released_at=now(session) if released else None,
                )
            )

    def ran(
        self, submission_id: str, stage: str, sent: SentPrompt | None = None, state: str = "done", **how: Any
    ) -> str:
        """A run of the current round, with what its model was sent; its id. `how` is its provenance."""
        with self.store.write() as session:
            round_ = session.query(tables.Round).filter_by(submission_id=submission_id, current=True).one()
            known = session.query(tables.Run).filter_by(round_id=round_.id, stage=stage).count()
            origin = {"machine": "dgx-spark-1", "engine": "ollama", "model": "qwen3-coder:30b", **how}
            run = tables.Run(
                round_id=round_.id, stage=stage, attempt=known + 1, state=state, accepted=state == "done",
                dispatched_at=now(session), result={"ok": state == "done", "provenance": origin},
            )  # fmt: skip
            session.add(run)
            session.flush()
            whole = {"run_id": run.id, "round_id": round_.id, "stage": stage, "ok": True}
            prompts.store_prompt(
                session, Result.model_validate({**whole, "provenance": origin, "prompt": sent})
            )
            return run.id

    def prepared(self, submission_id: str, content: dict[str, Any]) -> None:
        """What the current round was prepared to."""
        with self.store.write() as session:
            round_ = session.query(tables.Round).filter_by(submission_id=submission_id, current=True).one()
            round_.prepared = content

    def count(self, table: type[tables.Base]) -> int:
        """Rows of a table."""
        with self.store.read() as session:
            return session.query(table).count()

    def close(self) -> None:
        self.store.close()


def form_token(client: FlaskClient, page: str = "/tokens") -> str:
    """The CSRF token a page's forms carry."""
    found = re.search(r'name="csrf_token" value="([^"]+)"', client.get(page).get_data(as_text=True))
    assert found is not None
    return found[1]


def undo(client: FlaskClient, page: str) -> TestResponse:
    """Send the form of the Undo button that stands in a message on this page."""
    found = re.search(
        r'<form method="post" action="([^"]+)">((?:<input[^>]*>|\s)*)<button[^>]* data-undo',
        client.get(page).get_data(as_text=True),
    )
    assert found is not None, page
    fields = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', found[2])
    return client.post(unescape(found[1]), data={name: unescape(value) for name, value in fields})


def without_tokens(page: str) -> str:
    """A page without its nonces and CSRF tokens, in which any few letters may stand by chance."""
    return re.sub(r'"[\w.-]{16,}"', '""', page)


def report(text: str = "pandas", **changes: Any) -> Report:
    """A whole report; `text` turns up wherever a model may write."""
    here = Location(document="work.py", cell=None, line=3)
    origin = Provenance(
        machine="dgx-spark-1",
        engine="ollama",
        model="qwen3-coder:30b",
        digest="sha256:06c1097efce0",
        prompt_version="analysis-3",
        prompt_hash="0123456789abcdef0123",
        tokens=Tokens(prompt=4120, cached=3880, output=512),
        first_token_s=0.41,
        seconds=11.2,
        sampling={"temperature": 0.3},
    )
    outcome = CheckOutcome(check="c1", label="reads a file", earned=1, message=f"found {text}")
    other = CheckOutcome(check="c2", label="shows a plot", earned=0, message="no picture in the outputs")
    values: dict[str, Any] = {
        "status": RoundState.GRADED,
        "criteria": (
            CriterionGrade(
                criterion="load",
                title="Loads the data",
                stage="analysis",
                points=4,
                max_points=4,
                level=4,
                highest=4,
                basis="checks and model",
                reason=f"The file is read with {text}.",
                evidence=(outcome, other),
            ),
            CriterionGrade(
                criterion="think",
                title="Thinks about it",
                stage="feedback",
                points=4.5,
                max_points=6,
                level=3,
                highest=4,
                basis="model",
                reason=f"The reflection names {text} as a choice and says why.",
            ),
        ),
        "points": 8.5,
        "points_so_far": 8.5,
        "max_points": 10,
        "flags": (Flag(code="look", message=f"Worth a look: {text}"),),
        "analysis": AnalysisOutput(
            judgements=(Judgement(criterion="load", level=4),),
            summary=f"Clear work with {text}. The data is loaded and looked at before anything else.",
            strengths=("Names say what they hold.",),
            findings=(
                Finding(severity="praise", title=f"Good use of {text}", detail="Short.", location=here),
                Finding(severity="minor", title="No check for missing values", detail="Add one."),
            ),
            suggestions=(
                Suggestion(
                    what="Look at the types",
                    why="Dates come as text.",
                    how="Give `parse_dates`.",
                    example="pd.read_csv('sales.csv', parse_dates=['day'])",
                    location=Location(document="work.py", cell=1, line=4),
                ),
            ),
        ),
        "feedback": FeedbackOutput(
            judgements=(),
            achieved=f"You loaded **the data** with {text} and looked at it first.",
            reflection="You say what surprised you, which is a good habit.",
            strengths=("You explain your choices.",),
            practice="In a company you would note where the file came from.",
            develop=("Say what you would try next.",),
            next_step="Plot the sales by month.",
        ),
        "stages": {"analysis": origin, "feedback": origin.model_copy(update={"machine": "mac-studio-1"})},
        "notice": "Written by two language models on the school's own machines. Rules give the points.",
    }
    return Report(**{**values, **changes})


def limit(monkeypatch: pytest.MonkeyPatch, view: Callable[..., Any], amount: str) -> None:
    """Let apps that are made from now on bound this view otherwise."""
    known = vars(view)["rate_limit"]
    monkeypatch.setitem(vars(view), "rate_limit", replace(known, amount=amount))
