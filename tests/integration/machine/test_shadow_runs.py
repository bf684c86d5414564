"""Shadow runs of a machine: the prompts that it makes show that it reads less than it did."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from bench.halved_context import CONTEXT, Way, golden, machine, night
from grading.broker.connections import connect
from grading.broker.leases import Leases
from grading.statistics.golden_runs import findings


@pytest.fixture
def leases(redis_url: str) -> Iterator[Leases]:
    client = connect(redis_url)
    yield Leases(client, ("m0",))
    client.close()


SHORT, LONG = slice(3, 5), slice(1, 4)
"""Of ten submissions, three of which are longer than half of the context."""


@pytest.mark.parametrize(
    ("way", "which", "kind", "shortened"),
    [
        ("configured", SHORT, "context", 0),
        ("reported", SHORT, "context", 0),
        ("reported", LONG, "context", 2),
        ("cut", LONG, "reads_less", 2),
    ],
)
def test_half_of_a_context_is_noticed(
    leases: Leases, way: Way, which: slice, kind: str, shortened: int
) -> None:
    jobs = golden(random.Random(1), "some long")[which]
    whole, half = (night(machine("m0", leases, context, way), jobs, 1) for context in (CONTEXT, CONTEXT // 2))
    (found,) = findings({"m0": half}, {"m0": whole})
    assert (found.kind, len(found.submissions)) == (kind, shortened)
    assert findings({"m0": whole}, {"m0": whole}) == ()
