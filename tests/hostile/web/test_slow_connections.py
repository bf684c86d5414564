"""The attack of `slow_connections` against a real web app."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from cli.dev.embedded_redis import RedisProcess, free_port
from cli.dev.local_stack import accepts_uploads
from tests.faults.harness.machines import MachineSpec, config_of
from tests.hostile.web.slow_connections import main
from tests.support.system import ASSIGNMENT, furnish, site, until

ATTACKS = [[("mixed", 500), ("readers", 100)], pytest.param([("readers", 500)], marks=pytest.mark.soak)]
"""What 500 readers ask for at once keeps a computer busy that runs other tests, too."""


@pytest.mark.usefixtures("redis_url")
@pytest.mark.parametrize("attacks", ATTACKS)
def test_slow_connections_keep_nobody_waiting(
    attacks: Sequence[tuple[str, int]],
    tmp_path: Path,
    redis_server: RedisProcess,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port = free_port()
    config, url = config_of([MachineSpec("one")], port), f"http://127.0.0.1:{port}"
    with site(tmp_path, config, f"sqlite:///{tmp_path}/g.db", redis_server.url) as made:
        made.parts.start("web", "web", "--port", str(port), "--var", str(tmp_path / "var"))
        until(lambda: accepts_uploads(url), 60, f"the web app; see {tmp_path}")
        monkeypatch.setenv("ATTACK_TOKEN", furnish(made.store, url).token)
        # idle, all is answered within 1 s; without bounds nothing is within 10 s (reliability.md)
        held = ["--seconds", "2", "--every", "0.5", "--within", "10", "--assignment", ASSIGNMENT]
        for kind, connections in attacks:
            assert main([url, *held, "--kind", kind, "--connections", str(connections)]) == 0


def test_the_attack_says_when_it_could_not_begin() -> None:
    assert main([f"http://127.0.0.1:{free_port()}", "--seconds", "1"]) == 2
