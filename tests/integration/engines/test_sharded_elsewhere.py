"""A rank behind ssh, as on another computer, and a worker that is killed: no rank outlives it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from bench.tiny_models import make_model
from tests.support.engines import HEADS, ask, quiet
from tests.support.sharded import addresses, gone
from tests.support.ssh_server import ssh_server
from tests.support.system import alive
from workers.machine.engines.mlx.engine import MlxEngine

WORKER = """
import json, sys
from tests.support.engines import ENDLESS, ask, quiet
from workers.machine.engines.sharded.engine import ShardedEngine

model, hosts, remote = json.loads(sys.argv[1])
engine = ShardedEngine(hosts=hosts, remote=remote)
text = engine.generate(ask(model, schema={}, max_output_tokens=6, deadline_s=120.0), quiet).text

def told(tokens, phase="generating", draft=""):
    if tokens and phase == "generating":
        print(json.dumps([engine.group.pids, text]), flush=True)

endless = ask(model, schema=ENDLESS, max_output_tokens=3000, temperature=1.0, seed=3, deadline_s=120.0)
engine.generate(endless, told)
"""


def test_a_rank_behind_ssh_takes_part_and_ends_with_a_killed_worker(tmp_path: Path, root: Path) -> None:
    model = str(make_model(tmp_path / "model", "qwen2", HEADS))
    one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    (tmp_path / "ssh").mkdir()
    with ssh_server(tmp_path / "ssh", one_thread) as server:
        config = server.write_config("alone")
        remote = (
            f"ssh -T -F {config} -p {server.port} {server.user}@127.0.0.1 "
            f"cd {root} && exec {sys.executable} -m workers.machine.engines.sharded.rank"
        )
        given = json.dumps([model, addresses(1, "127.0.0.2"), remote])
        command = [sys.executable, "-c", WORKER, given]
        with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE) as worker:
            try:
                assert worker.stdout is not None
                pids, text = json.loads(worker.stdout.readline())
                assert all(map(alive, pids))
            finally:
                worker.kill()
        gone(pids)
    direct = MlxEngine(slots=1)
    assert text == direct.generate(ask(model, schema={}, max_output_tokens=6), quiet).text
    direct.close()
