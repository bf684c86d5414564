"""Steps of stress tests: variants are made, what they got is stored, the worst are recombined."""

from __future__ import annotations

import logging
from datetime import timedelta

from grading.documents import pseudonymise
from grading.store import periodic_tasks
from grading.store.privacy.deletion import delete_submissions
from grading.store.trust import stress_tests
from grading.store.trust.stress_tests import Source
from grading.stress_tests import catalogue
from grading.stress_tests.variant import Documents, Setting
from workers.server.context import Server
from workers.server.rubric_cache import DOCUMENTS, Version

log = logging.getLogger(__name__)
EVERY = timedelta(seconds=5)
"""How often it is looked whether variants are graded."""


def advance(server: Server, name: str) -> None:
    """Do the next step of a stress test, if it is due: make variants, store what they got, or end it."""
    with server.store.write() as session:
        stress_test_id = stress_tests.claim(session, name)
    if stress_test_id is None:
        return
    again = EVERY
    if _make_variants(server, stress_test_id):
        again = timedelta()
    elif _collect(server, stress_test_id) == 0:
        with server.store.write() as session:
            more = stress_tests.next_generation(session, stress_test_id)
        if not more:
            log.info("stress test %s is over", stress_test_id)
            return
        again = timedelta()
    with server.store.write() as session:
        periodic_tasks.reschedule(session, name, again)


def _make_variants(server: Server, stress_test_id: str) -> bool:
    """Make the variants of one submission; whether there were any to make."""
    with server.store.read() as session:
        test = stress_tests.load(session, stress_test_id)
        if test.cancelled_at is not None:
            return False
        seed, version = test.seed, server.versions.get(session, test.rubric_version_id)
        sources = stress_tests.list_unmade(session, stress_test_id)
    # of one submission in a step: the sweeper has other things to do
    for source in sources[:1]:
        found = variants(source, version, seed)
        made = [(one, DOCUMENTS.dump_python(documents, mode="json")) for one, documents in found]
        with server.store.write() as session:
            count = stress_tests.add_variants(session, stress_test_id, source.id, made)
        log.info("stress test %s: %d variants of submission %s", stress_test_id, count, source.id)
    return bool(sources)


def variants(source: Source, version: Version, seed: int) -> list[tuple[catalogue.Planned, Documents]]:
    """The variants of one submission, without names."""
    setting = Setting(version.rubric, version.starter, version.solution, tuple(version.tests.values()))
    documents = pseudonymise(DOCUMENTS.validate_python(source.documents), source.identity)
    planned = source.planned or catalogue.plan(setting, seed, source.number, source.total)
    made = ((one, catalogue.make(one, documents, setting, seed, source.id)) for one in planned)
    return [(one, found) for one, found in made if found is not None]


def _collect(server: Server, stress_test_id: str) -> int:
    """Store what graded variants got, and delete them; how many are not graded yet."""
    with server.store.write() as session:
        over, waiting = stress_tests.collect(session, stress_test_id)
        delete_submissions(session, over)
    return waiting
