"""A machine measures itself with a real model, and stops when work comes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from bench.models import make_model
from grading.config import StageSettings
from grading.leases import connect
from grading.machines import Machine
from tests.engines import SMALLER
from tests.system import until
from workers.machine import measuring as module
from workers.machine.engines.mlx import MlxEngine
from workers.machine.measuring import Booked, Measuring
from workers.machine.pacing import Pacing
from workers.machine.stages import made_up as texts
from workers.machine.stages.table import STAGES

SLOTS = 2


@pytest.fixture
def measuring(tmp_path: Path, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Measuring]:
    """Of a machine with a tiny model for both stages, and of hand-ins that are small, too."""
    monkeypatch.setattr(texts, "SHARED_CHARS", 500)
    monkeypatch.setattr(texts, "OWN_CHARS", 500)
    model = str(make_model(tmp_path / "model", shape=SMALLER, context=32_768))
    placed = {stage: {"engine": "mlx", "model": model} for stage in STAGES}
    machine = Machine.model_validate({"name": "mac", "slots": SLOTS, "stages": placed})
    client = connect(redis_url)
    pacing = Pacing(machine, client, tuple)
    settings = dict.fromkeys(STAGES, StageSettings(max_output_tokens=256))
    engine = MlxEngine(slots=SLOTS)
    booked = Booked(client, machine)
    made = Measuring(
        machine, {"mlx": engine}, pacing, booked, settings, lambda: False, lambda _stage: True, dict
    )
    pacing.made_up = lambda: made.runs
    yield made
    engine.close()
    client.close()


def test_it_learns_the_speed_of_both_stages(measuring: Measuring) -> None:
    stop = threading.Event()
    looking = threading.Thread(target=measuring.pacing.until_stopped, args=(stop,))
    looking.start()
    try:
        with mock.patch.object(module, "IDLE_S", 0.0), mock.patch.object(module, "ENOUGH", 1.0):
            while measuring.wanted():
                measuring.look()
    finally:
        stop.set()
        looking.join()
    paces = measuring.pacing.paces()
    assert set(paces) == set(STAGES)
    assert all(pace.seen > 0 and pace.full_s >= pace.alone_s > 0 for pace in paces.values())


def test_it_stops_in_the_middle(measuring: Measuring) -> None:
    with mock.patch.object(module, "IDLE_S", 0.0):
        thread = threading.Thread(target=measuring.look)
        thread.start()
        until(
            lambda: any(run.phase in ("reading", "generating") for run in measuring.runs),
            30,
            "a prompt is read",
        )
        measuring.give_way()
        thread.join(10)
    assert not thread.is_alive()
    assert measuring.runs == []
