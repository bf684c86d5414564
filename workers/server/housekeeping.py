"""Slow chores of the sweeper: retention, erased data, due releases, comparisons, stress tests, tokens."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from grading.broker.erasure import withdraw
from grading.broker.token_use import TokenUse, by_key
from grading.store import change_tracking, periodic_tasks
from grading.store.accounts import gateway_use, sessions, sign_in_attempts
from grading.store.database import now
from grading.store.grades import release
from grading.store.privacy import retention
from grading.store.privacy.erasure import WITHDRAW
from grading.store.similarity import comparisons
from grading.store.trust import stress_tests as stored_stress_tests
from workers.server import stress_tests
from workers.server.context import Server

log = logging.getLogger(__name__)
DAILY = "retention"
EVERY = timedelta(days=1)
NEXT_HELPING = timedelta(seconds=2)
WITHDRAW_EVERY = timedelta(seconds=60)
TIDY = "tidy touches"
TIDY_EVERY = timedelta(seconds=60)
USE = "store token use"
USE_EVERY = timedelta(seconds=60)


def do_chores(server: Server) -> None:
    """Do one chunk of each chore that is due; most of the time that is none.

    Whoever takes a chore does it alone: the database's clock says when it is due again.
    """
    with server.store.read() as session:
        withdrawals = periodic_tasks.list_due(session, WITHDRAW)
        daily, untidy = _is_due(session, DAILY), _is_due(session, TIDY)
        releases = release.list_due_releases(session)
        comparisons_due = periodic_tasks.list_due(session, comparisons.TASK_PREFIX)
        stress_tests_due = periodic_tasks.list_due(session, stored_stress_tests.TASK_PREFIX)
    for name in releases:
        _release(server, name)
    for name in withdrawals:
        _withdraw(server, name)
    for name in comparisons_due[:1]:
        _compare(server, name)
    for name in stress_tests_due[:1]:
        stress_tests.advance(server, name)
    if daily:
        _retain(server)
    if untidy:
        _tidy(server)


def store_use(server: Server) -> None:
    """Add to SQL what API tokens used of the gateway, every minute, one sweeper at a time.

    What a crash between SQL and Redis leaves in both is counted again. Raises redis errors.
    """
    counts = TokenUse(server.dispatch.registry.redis)
    if not counts.pending():
        return
    with server.store.read() as session:
        if not _is_due(session, USE):
            return
    with server.store.write() as session:
        periodic_tasks.schedule(session, USE)
        if periodic_tasks.claim(session, USE) is None:
            return
        pending = counts.pending()
        gateway_use.add_use(session, by_key(pending))
        periodic_tasks.reschedule(session, USE, USE_EVERY)
    counts.settle(pending)


def _is_due(session: Session, name: str) -> bool:
    """Whether to claim a task, which its first claim schedules."""
    return bool(periodic_tasks.list_due(session, name)) or not periodic_tasks.is_scheduled(session, name)


def _release(server: Server, name: str) -> None:
    with server.store.write() as session:
        count = release.release_due(session, name)
    if count:
        log.info("scheduled release: %d grades of an assignment were released", count)


def _compare(server: Server, name: str) -> None:
    with server.store.write() as session:
        assignment_id = comparisons.claim(session, name)
    if assignment_id is None:
        return
    with server.store.read() as session:
        found, works, earlier = comparisons.compare(session, assignment_id)
    with server.store.write() as session:
        comparisons.save_comparison(session, assignment_id, found, works, earlier)
    log.info("compared %d submissions of assignment %d: %d pairs", works, assignment_id, len(found.pairs))


def _retain(server: Server) -> None:
    with server.store.write() as session:
        periodic_tasks.schedule(session, DAILY)
        if periodic_tasks.claim(session, DAILY) is None:
            return
        removed = retention.delete_chunk(session, server.config.retention)
        periodic_tasks.reschedule(session, DAILY, NEXT_HELPING if removed else EVERY)
    if removed:
        log.info(
            "retention period passed, deleted: %s", ", ".join(f"{n} {kind}" for kind, n in removed.items())
        )


def _tidy(server: Server) -> None:
    with server.store.write() as session:
        periodic_tasks.schedule(session, TIDY)
        if periodic_tasks.claim(session, TIDY) is not None:
            change_tracking.merge_markers(session)
            sign_in_attempts.delete_expired(session)
            sessions.delete_expired(session)
            periodic_tasks.reschedule(session, TIDY, TIDY_EVERY)


def _withdraw(server: Server, name: str) -> None:
    with server.store.write() as session:
        payload = periodic_tasks.claim(session, name)
        over = payload is not None and now(session) >= datetime.fromisoformat(payload["until"])
    if payload is None:
        return
    removed = withdraw(server.dispatch.registry.redis, payload["ids"])
    if removed:
        log.info("deleted %d keys of erased submissions from redis", removed)
    with server.store.write() as session:
        if over:
            periodic_tasks.remove(session, name)
        else:
            periodic_tasks.reschedule(session, name, WITHDRAW_EVERY)
