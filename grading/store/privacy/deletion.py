"""Deletion of submissions with all rows that refer to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from grading.store.blobs import delete_unused_blobs
from grading.store.bulk import chunks, delete_rows
from grading.store.learning_platforms import known_platforms
from grading.store.rounds import example_usage
from grading.store.tables import (
    Answer,
    CachedExecution,
    Change,
    ClassUpload,
    DryRunRound,
    Example,
    GoldenSubmission,
    Grade,
    GuaranteeCandidate,
    GuaranteeMember,
    HumanMark,
    IdempotencyKey,
    InboundWebhook,
    LevelView,
    MailPreference,
    Mark,
    Outbox,
    Prompt,
    RegradeRequest,
    Round,
    RoundStage,
    Run,
    SecondOpinion,
    SentMessage,
    SeparateAnswer,
    ShadowRun,
    SimilarPair,
    StressVariant,
    Submission,
    SubmissionFile,
    SubmissionMember,
)

EVENTS = ("graded", "partial", "failed", "released", "withdrawn")

_OF_SUBMISSION: tuple[type[Any], ...] = (
    Answer, Change, DryRunRound, Example, GoldenSubmission, GuaranteeCandidate, GuaranteeMember, HumanMark,
    LevelView, MailPreference, Mark, RegradeRequest, SecondOpinion, SeparateAnswer, ShadowRun,
    SubmissionMember,
)  # fmt: skip


def delete_submissions(session: Session, ids: Sequence[str]) -> Counter[str]:
    """Delete submissions with all rows that refer to them; returns the number of rows by table.

    Variants of them that a stress test grades are deleted, too. Blobs that other rows refer to stay.
    """
    counts: Counter[str] = Counter()
    every = dict.fromkeys([*ids, *variants_of(session, ids)])
    for some in chunks(list(every)):
        lock_submissions(session, Submission.id.in_(some))
        rounds = _locked_rounds(session, some)
        names = list(
            session.scalars(select(SubmissionFile.sha256).where(SubmissionFile.submission_id.in_(some)))
        )
        example_usage.delete_quoting_prompts(session, some)
        for theirs in _OF_SUBMISSION:
            counts += delete_rows(session, theirs, theirs.submission_id.in_(some))
        counts += _of_stress_tests(session, some)
        for column in (SimilarPair.one_id, SimilarPair.other_id):
            counts += delete_rows(session, SimilarPair, column.in_(some))
        for few in chunks(rounds):
            counts += _of_rounds(session, few)
        counts += delete_rows(session, Outbox, Outbox.key.in_([f"received:{one}" for one in some]))
        for platform in known_platforms():
            platform.detach(session, some)
        for table in (
            Grade,
            Round,
            IdempotencyKey,
            InboundWebhook,
            SubmissionFile,
            CachedExecution,
            SentMessage,
        ):
            counts += delete_rows(session, table, table.submission_id.in_(some))
        counts += delete_rows(session, Submission, Submission.id.in_(some))
        counts["blobs"] += delete_unused_blobs(session, names)
    return +counts


def _locked_rounds(session: Session, ids: Sequence[str]) -> Sequence[str]:
    """The rounds of submissions, locked.

    Whoever changes a round locks it first; taken in another order, both would wait for each other.
    """
    query = select(Round.id).where(Round.submission_id.in_(ids)).order_by(Round.id)
    return session.scalars(query.with_for_update()).all()


def variants_of(session: Session, ids: Sequence[str]) -> list[str]:
    """Submissions that are variants of these, while a stress test grades them."""
    own = StressVariant
    return [
        one
        for some in chunks(ids)
        for one in session.scalars(select(own.variant_id).where(own.source_id.in_(some)))
        if one is not None
    ]


def _of_stress_tests(session: Session, ids: Sequence[str]) -> Counter[str]:
    """Variants of these submissions; of those that are variants themselves, what they got stays."""
    over = update(StressVariant).where(StressVariant.variant_id.in_(ids))
    session.execute(over.values(variant_id=None, round_id=None, ended=True))
    return delete_rows(session, StressVariant, StressVariant.source_id.in_(ids))


def lock_submissions(session: Session, *where: Any) -> None:
    """Lock these submissions until the transaction ends, against transactions that add rounds.

    `key_share` lets grades be written: those transactions hold the round, which is waited for next.
    """
    query = select(Submission.id).where(*where).order_by(Submission.id)
    session.execute(query.with_for_update(key_share=True))


def _of_rounds(session: Session, rounds: Sequence[str]) -> Counter[str]:
    keys = [*rounds, *(f"{event}:{round_id}" for event in EVENTS for round_id in rounds)]
    counts = delete_rows(session, Outbox, Outbox.key.in_(keys))
    counts += delete_prompts(session, rounds)
    for table in (Run, RoundStage):
        counts += delete_rows(session, table, table.round_id.in_(rounds))
    return counts


def delete_prompts(session: Session, rounds: Sequence[str]) -> Counter[str]:
    """Delete the prompts of these rounds; shared system messages are deleted when unused."""
    return delete_rows(session, Prompt, Prompt.run_id.in_(select(Run.id).where(Run.round_id.in_(rounds))))


def delete_class_uploads(session: Session, ids: Sequence[str]) -> Counter[str]:
    """Delete class uploads."""
    names = list(session.scalars(select(ClassUpload.sha256).where(ClassUpload.id.in_(ids))))
    counts = delete_rows(session, ClassUpload, ClassUpload.id.in_(ids))
    counts["blobs"] += delete_unused_blobs(session, names)
    return +counts
