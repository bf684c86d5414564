"""Which of these tests there are on which system, and the models that tests of engines share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bench.tiny_models import make_model
from tests.support.engines import HEADS
from tests.support.services import Prepare

if TYPE_CHECKING:
    from workers.machine.engines.mlx.engine import MlxEngine

# namespaces are Linux's own, elsewhere students' work runs in containers or not at all; so is 127.0.0.2
LINUX = [
    "sandbox/test_backends.py",
    "sandbox/test_bubblewrap.py",
    "engines/test_sharded_elsewhere.py",
    "engines/test_remote_prefill_networks.py",
]
collect_ignore = [] if sys.platform == "linux" else LINUX


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny model."""
    return make_model(tmp_path_factory.mktemp("tiny"), shape=HEADS)


@pytest.fixture(scope="session")
def qwen2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny model whose four layers can be shared out to several ranks."""
    return make_model(tmp_path_factory.mktemp("qwen2"), "qwen2", replace(HEADS, layers=4))


@pytest.fixture(scope="module")
def mlx(tiny: Path) -> Iterator[MlxEngine]:
    """An engine of four slots with the tiny model loaded."""
    from workers.machine.engines.mlx.engine import MlxEngine

    engine = MlxEngine(slots=4)
    engine.load(str(tiny))
    yield engine
    engine.close()


@pytest.fixture
def school_url(fresh_database: Callable[[Prepare | None], str]) -> str:
    """URL of a database for a `School`, on SQLite and on PostgreSQL, copied instead of made again."""
    from tests.integration import webapp  # half of what a process that tests only sandboxes would load

    return fresh_database(webapp.prepare)
