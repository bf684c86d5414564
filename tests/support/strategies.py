"""What tests of strategies share: figures of an engine with short prompts, and what follows from them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from cli.doctor.strategies import Result, result_of
from grading.scheduling.crossings import UsualPrompts
from workers.machine.engines.base import Engine
from workers.machine.strategy_comparison import Lengths, Limits, Place

SHORT = Lengths(new=(24, 60), known=40, output=4, batches=(1, 2), drafted=12)


def compared(engine: Engine, model: Path, draft: str = "", seconds: float = 90.0) -> tuple[Any, Result]:
    """What was measured once, and the result for prompts as long as the longest."""
    found = Place(engine, str(model), 2, Limits(time.monotonic() + seconds), SHORT, rounds=1).compare(draft)
    assert found is not None
    usual = UsualPrompts(runs=3, known=found["rows"][-1]["known"] if found["rows"] else 0, new=60, output=4)
    told = {"engine": "mlx", "model": model.name, "stages": ["analysis"], **found}
    return found, result_of("one", told, usual)


def expect_figures(found: Any, *cases: tuple[int, bool]) -> None:
    """A row for each batch, with or without a prefix in caches, and both ways took some time in it."""
    assert found["fault"] == ""
    assert [(row["batch"], row["known"] > 20) for row in found["rows"]] == list(cases)
    for row in found["rows"]:
        assert row["new"] > 0
        for way in ("direct", "strategy"):
            assert row[way]["first_s"] > 0
            assert row[way]["tokens_s"] is None or row[way]["tokens_s"] > 0
