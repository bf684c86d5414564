"""The log of what was accepted, and its comparison with SQL: lost, unexpected, graded twice, stuck."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

import requests
from sqlalchemy import select

from grading.domain.round_states import RoundState
from grading.store import Store
from grading.store.tables import Grade, Identity, Round, Run, Submission
from tests.support.system import ASSIGNMENT

TRY_FOR_S = 90.0


@dataclass
class Ledger:
    """Submits over HTTP and writes down every 2xx with its id.

    A POST is repeated with the same key until it is accepted, as a client does that gets no answer.
    """

    url: str
    token: str
    attempted: set[str] = field(default_factory=set)
    """Students; each submits once."""
    accepted: dict[str, str] = field(default_factory=dict)
    """student -> submission id of a 2xx"""
    waits: list[float] = field(default_factory=list)
    """Seconds from the first try to the 2xx"""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def submit(self, student: str, text: str = "mean(sales)") -> str:
        """Submit; returns the submission's id."""
        with self._lock:
            self.attempted.add(student)
        begun = time.monotonic()
        while True:
            submission = self._post(student, text)
            if submission is not None:
                break
            assert time.monotonic() - begun < TRY_FOR_S, f"{student}: not accepted within {TRY_FOR_S:g} s"
            time.sleep(0.3)
        with self._lock:
            self.accepted[student] = submission
            self.waits.append(time.monotonic() - begun)
        return submission

    def _post(self, student: str, text: str) -> str | None:
        headers = {"Authorization": f"Bearer {self.token}", "Idempotency-Key": student}
        try:
            answer = requests.post(
                f"{self.url}/api/v1/submissions",
                data={"assignment": ASSIGNMENT, "student": student},
                files=[("files", ("work.R", f"# work of {student}\n{text}".encode()))],
                headers=headers,
                timeout=30,
            )
        except requests.RequestException:
            return None
        if not answer.ok:
            again = answer.status_code >= 500 or answer.json()["code"] == "idempotency_key_in_use"
            assert again, f"{student}: {answer.status_code} {answer.text[:300]}"
            return None
        return str(answer.json()["id"])


@dataclass(frozen=True)
class Verdict:
    """What SQL says about what was accepted; every list should be empty."""

    accepted: int
    lost: list[str]
    """Accepted with a 2xx and not in SQL."""
    unexpected: list[str]
    """In SQL without anybody having sent it, or twice for one sending."""
    twice: list[str]
    """More than one grade or current round, or more than one accepted run of a stage."""
    stuck: list[str]
    """Not graded, partial or failed by now."""
    states: dict[str, int]
    ungraded: list[str]
    """Ended partial or failed."""

    @property
    def clean(self) -> bool:
        """Nothing lost, unexpected, twice or stuck."""
        return not (self.lost or self.unexpected or self.twice or self.stuck)

    def row(self) -> dict[str, Any]:
        """Counts, for a table."""
        return {key: len(v) if isinstance(v, list) else v for key, v in asdict(self).items()}


def verdict(store: Store, ledger: Ledger) -> Verdict:
    """Compare the log with SQL."""
    with store.read() as session:
        students = dict(session.execute(select(Identity.user_id, Identity.subject)).all())
        rows = session.execute(select(Submission.id, Submission.student_id)).all()
        rounds = session.execute(
            select(Round.id, Round.submission_id, Round.state).where(Round.current)
        ).all()
        grades = Counter(session.scalars(select(Grade.round_id)))
        accepted = session.execute(select(Run.round_id, Run.stage).where(Run.accepted))
        runs = Counter((run.round_id, run.stage) for run in accepted)
    by_student = Counter(students[student] for _, student in rows)
    current = Counter(row.submission_id for row in rounds)
    final = {row.submission_id for row in rounds if RoundState(row.state).final}
    graded = [row for row in rounds if row.state == RoundState.GRADED]
    twice = [key for key, count in grades.items() if count > 1]
    twice += [f"{round_id} {stage}" for (round_id, stage), count in runs.items() if count > 1]
    twice += [submission for submission, _ in rows if current[submission] != 1]
    twice += [
        row.id
        for row in graded
        if grades[row.id] != 1 or any(runs[row.id, s] != 1 for s in ("analysis", "feedback"))
    ]
    return Verdict(
        accepted=len(ledger.accepted),
        lost=sorted(set(ledger.accepted.values()) - {submission for submission, _ in rows}),
        unexpected=sorted(s for s, n in by_student.items() if s not in ledger.attempted or n > 1),
        twice=twice,
        stuck=sorted({submission for submission, _ in rows} - final),
        states=dict(Counter(str(row.state) for row in rounds)),
        ungraded=[
            row.submission_id for row in rounds if row.state in (RoundState.PARTIAL, RoundState.FAILED)
        ],
    )


@dataclass(frozen=True)
class TakeOver:
    """A run that was begun anew. Times since the fault, in seconds."""

    round_id: str
    stage: str
    attempt: int
    sent_s: float
    begun_s: float | None
    """When a machine began it; unknown until it ended."""


def take_overs(store: Store, fault: datetime, of: set[str] | None = None) -> list[TakeOver]:
    """The runs that came after those lost by a fault; `of` are the ids of the lost ones, if known."""
    with store.read() as session:
        pairs = {
            (r.round_id, r.stage): r.attempt for r in session.scalars(select(Run).where(Run.id.in_(of or ())))
        }
        query = select(Run).where(Run.attempt > 1, Run.dispatched_at >= fault).order_by(Run.dispatched_at)
        found = [
            run
            for run in session.scalars(query)
            if of is None or run.attempt == pairs.get((run.round_id, run.stage), -9) + 1
        ]
    return [_take_over(run, fault) for run in found]


def _take_over(run: Run, fault: datetime) -> TakeOver:
    begun = None
    if run.finished_at is not None and run.result:
        ended = (run.finished_at - fault).total_seconds()
        begun = ended - float(run.result["provenance"]["seconds"])
    sent = (run.dispatched_at - fault).total_seconds()
    return TakeOver(run.round_id, run.stage, run.attempt, sent, begun)


@dataclass(frozen=True)
class Known:
    """What SQL says of a run."""

    id: str
    round_id: str
    stage: str
    attempt: int
    state: str
    machine: str | None
    error: str | None
    accepted: bool
    answered: bool


def known_runs(store: Store) -> list[Known]:
    """Every run, in the order in which they were written down."""
    with store.read() as session:
        return [
            Known(
                r.id,
                r.round_id,
                r.stage,
                r.attempt,
                r.state,
                r.machine,
                r.error,
                r.accepted,
                r.result is not None,
            )
            for r in session.scalars(select(Run).order_by(Run.dispatched_at))
        ]


def moment() -> datetime:
    """Now, on the clock of the machine that has the database."""
    return datetime.now(UTC)
