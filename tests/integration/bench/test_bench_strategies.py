"""`grader bench strategies` with two real processes, and little of everything."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.models import TINY
from bench.strategies import grid, report, run
from bench.strategies.arithmetic import STRATEGIES
from bench.strategies.planned import Setting
from bench.strategies.sides import SideGone, two
from cli.commands.bench import bench

SHORT = replace(
    run.QUICK,
    limit_s=0.0,
    step=128,
    hand=300,
    prompts=(200,),
    outputs=(4,),
    settings=(Setting(300, 0, 0.2),),
    drafts=(64, 12),
)
"""One turn of each part."""


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "SHAPE", TINY)
    monkeypatch.setattr(run, "QUICK", SHORT)


@pytest.mark.timeout(120)  # it takes some seconds, but starts two processes, on a machine that may be busy
def test_every_strategy_is_measured_and_reckoned(tiny: None, tmp_path: Path) -> None:
    done = CliRunner().invoke(bench, ["strategies", "--quick", "--json", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found == report.load(tmp_path)
    assert found["tail"]["prompt"] >= 300
    assert found["tail"]["tail_s"]["median"] > 0
    (gain,) = found["gains"]
    assert gain["serial_s"]["median"] > 0
    assert gain["reckoned"] > 1
    (cell,) = found["cells"]
    assert list(cell["measured"]) == list(cell["reckoned"]) == list(STRATEGIES) == list(grid.WAYS)
    assert all(spread["median"] > 0 for spread in cell["measured"].values())
    (chosen,) = found["chosen"]
    assert sum(chosen["chose"].values()) == 1
    equal, other = found["drafts"]
    assert equal["accepted"] == equal["proposed"] > 0
    assert other["proposed"] > other["accepted"]
    assert len(found["targets"]) == 3
    assert len(list(report.lines(found))) > 10
    for picture in tmp_path.glob("*.svg"):
        assert ET.fromstring(picture.read_text()).tag.endswith("svg")
    pictures = {"strategies-overlap.svg", "strategies-4.svg"}
    assert {path.name for path in tmp_path.iterdir()} == {report.FILE, *pictures}


def test_a_machine_that_cannot_do_something_says_what(tmp_path: Path) -> None:
    with two(tmp_path / "nothing", 128) as (a, _), pytest.raises(SideGone, match="ModelMissing"):
        a.engine("direct")
