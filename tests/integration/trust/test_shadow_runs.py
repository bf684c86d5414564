"""Shadow runs of a night: sent to idle machines, without a write while none is there."""

from __future__ import annotations

import pytest
from sqlalchemy import select, update

from grading.domain.permissions import Actor
from grading.domain.shadow_runs import ShadowOutcome
from grading.store.database import now
from grading.store.tables import Grade, Round, ShadowRun
from grading.store.trust import parity
from tests.integration.trust.test_second_opinions import Cluster, cluster
from tests.support.system import until
from workers.server import shadow_runs

__all__ = ["cluster"]


def test_a_night_without_one_submissions_text(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    server = cluster.system.server
    rounds = cluster.grade(*(f"s-{number}" for number in range(parity.FEWEST)))
    cluster.heartbeat(busy=1)
    with cluster.store.write() as session:
        session.execute(update(Grade).values(held=False, reviewed_at=now(session)))
        chosen = [one.submission_id for one in parity.list_candidates(session, 1)]
        assert parity.choose_golden(session, 1, chosen, Actor(1, administrator=True)) == parity.FEWEST
    shadow_runs.sweep(server)
    with monkeypatch.context() as patched:
        patched.setattr(cluster.store, "write", None)
        shadow_runs.sweep(server)
    gone = rounds[:2]  # at least one is among the four that a machine gets at once
    with cluster.store.write() as session:
        session.execute(update(Round).where(Round.id.in_(gone)).values(prepared=None))  # by retention

    def states() -> set[tuple[bool, str]]:
        cluster.heartbeat("one")
        shadow_runs.sweep(server)
        with cluster.store.read() as session:
            runs = session.scalars(select(ShadowRun).where(ShadowRun.machine == "one")).all()
        return {(one.round_id in gone, one.state) for one in runs}

    until(lambda: {(True, "failed"), (False, "sent")} <= states(), 30, "the others are sent")
    assert (True, "sent") not in states()


@pytest.mark.parametrize("levels", ['{"c": 1%s}' % ("0" * 400), '{"c": -1}', '{"c": 5}'])
def test_levels_of_a_machine_are_levels(levels: str) -> None:
    with pytest.raises(ValueError, match="levels"):
        ShadowOutcome.model_validate_json(f'{{"ok": true, "levels": {levels}}}')
