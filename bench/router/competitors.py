"""Competitors of the router benchmark: routers of vLLM, SGLang and LiteLLM, simple clients of ours."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from bench.router.cost_model import STAGES
from bench.router.policies import HOME
from bench.router.processes import ROOT, EmulatedServers, Processes, read_line, write_line
from bench.router.protocols import mark
from bench.router.results import Ended, Plan
from bench.router.simulation import Arrival
from cli.dev.embedded_redis import free_port

VENV = ROOT / ".venv-bench"
LOCK = ROOT / "requirements-bench.lock"
START_S = 60.0
SYSTEM = "You judge homework against the rubric of the class. " * 320
"""What the class shares: about 4,000 tokens."""
USER = "x <- mean(sales$amount) # as the task asks\n" * 95
"""One student's own: about 1,000 tokens."""
MOST_TOKENS = 8_000


class Missing(Exception):
    """Something that the benchmark needs could not be installed."""


@dataclass(frozen=True)
class Competitor:
    """A way of sending; `kind` and `detail` are for `client.py`, `program` is a router between."""

    name: str
    kind: str
    detail: Mapping[str, str] = field(default_factory=dict)
    program: Callable[[int, EmulatedServers, Plan], Sequence[str]] | None = None
    installed: bool = False
    """It comes from the bench extra."""

    @contextmanager
    def ready(
        self, processes: Processes, servers: EmulatedServers, plan: Plan
    ) -> Iterator[Mapping[str, Any]]:
        """Start what stands between; gives the way for the plan."""
        if self.program is None:
            yield {"kind": self.kind, **self.detail}
            return
        port = free_port()
        process = processes.start("router", self.program(port, servers, plan))
        url = f"http://127.0.0.1:{port}"
        _until_answers(f"{url}/health", process, processes.folder)
        yield {"kind": self.kind, "url": url}


def _until_answers(url: str, process: subprocess.Popen[bytes], folder: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urlopen(url, timeout=5) as answer:  # noqa: S310 - on loopback
                if answer.status == 200:
                    return
        except (URLError, OSError):
            time.sleep(0.1)
    raise Missing(f"the router does not answer; see {folder / 'router.log'}")


def _sglang(policy: str) -> Callable[[int, EmulatedServers, Plan], Sequence[str]]:
    def program(port: int, servers: EmulatedServers, plan: Plan) -> Sequence[str]:
        return [
            str(VENV / "bin" / "sglang-router"), "launch",
            "--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(free_port()),
            "--policy", policy, "--worker-urls", *servers.urls.values(), "--log-level", "warn",
        ]  # fmt: skip

    return program


def _vllm(policy: str) -> Callable[[int, EmulatedServers, Plan], Sequence[str]]:
    def program(port: int, servers: EmulatedServers, plan: Plan) -> Sequence[str]:
        return [
            str(VENV / "bin" / "vllm-router"),
            "--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(free_port()),
            "--policy", policy, "--worker-urls", *servers.urls.values(), "--log-level", "warning",
        ]  # fmt: skip

    return program


def _litellm(strategy: str) -> Competitor:
    return Competitor(f"litellm {strategy}", "litellm", {"strategy": strategy}, installed=True)


COMPETITORS: Mapping[str, Competitor] = {
    "pinned": Competitor("pinned to the first pair", "pinned"),
    "roles": Competitor("fixed roles, round-robin", "roles"),
    "shortest": Competitor("join shortest queue", "shortest"),
    "litellm-least-busy": _litellm("least-busy"),
    "litellm-latency": _litellm("latency-based-routing"),
    "litellm-shuffle": _litellm("simple-shuffle"),
    "sglang-two": Competitor("sglang power of two", "router", {}, _sglang("power_of_two"), installed=True),
    "sglang-cache": Competitor("sglang cache-aware", "router", {}, _sglang("cache_aware"), installed=True),
    "vllm-two": Competitor("vllm power of two", "router", {}, _vllm("power_of_two"), installed=True),
    "vllm-cache": Competitor("vllm cache-aware", "router", {}, _vllm("cache_aware"), installed=True),
}


def send(
    processes: Processes,
    way: Mapping[str, Any],
    plan: Plan,
    servers: EmulatedServers,
    tell: Callable[[str], None],
) -> list[Ended]:
    """Everything of the plan on this way; what came of each submission."""
    python = VENV / "bin" / "python" if way["kind"] == "litellm" else Path(sys.executable)
    parts_environ = Processes(processes.folder, {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}, processes.running)
    client = parts_environ.start(
        "client", [str(python), str(Path(__file__).parent / "client.py")], talks=True
    )
    write_line(client, _plan(way, plan, servers))
    if read_line(client).strip() != "ready":
        raise Missing(f"the client did not start: {(processes.folder / 'client.log').read_text()[-2000:]}")
    write_line(client, "begin")
    answer = json.loads(read_line(client) or "{}")
    if "done" not in answer:
        raise Missing(f"the client broke off: {(processes.folder / 'client.log').read_text()[-2000:]}")
    tries = sum(one["tries"] - 1 for one in answer["done"])
    if tries:
        tell(f"{tries} requests were sent again")
    return _ended(plan, answer["done"])


def _plan(way: Mapping[str, Any], plan: Plan, servers: EmulatedServers) -> Mapping[str, Any]:
    return {
        "factor": plan.factor,
        "at_once": plan.at_once,
        "way": way,
        "urls": servers.urls,
        "homes": HOME,
        "stages": {
            stage: {"model": work.model.name, "system": f"{stage}. {SYSTEM}", "most": MOST_TOKENS}
            for stage, work in STAGES.items()
        },
        "user": USER,
        "arrivals": _marked(plan.scenario.arrivals),
        "learn": _marked(plan.before),
    }


def _marked(arrivals: Sequence[Arrival]) -> list[Mapping[str, Any]]:
    return [{"at": one.at, "mark": mark(number, one.output)} for number, one in enumerate(arrivals)]


def _ended(plan: Plan, done: Sequence[Mapping[str, Any]]) -> list[Ended]:
    of: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for one in done:
        of[one["number"]].append(one)
    arrivals = plan.scenario.arrivals
    return [
        Ended(n, arrivals[n].at, max(o["ended"] for o in both), all(o["ok"] for o in both))
        for n, both in of.items()
    ]


def install(tell: Callable[[str], None]) -> None:
    """Make the environment of other people's routers, unless it is there. Raises Missing."""
    made = VENV / ".made"
    wanted = LOCK.read_text(encoding="utf-8")
    if made.is_file() and made.read_text(encoding="utf-8") == wanted:
        return
    tell(f"installing other people's routers into {VENV.name}")
    pip = ["-m", "pip", "-qq", "--disable-pip-version-check", "--no-input"]
    target = str(VENV / "bin" / "python")
    for command in (
        [sys.executable, "-m", "venv", "--clear", "--without-pip", str(VENV)],
        [
            sys.executable,
            *pip,
            "--python",
            target,
            "install",
            "--no-deps",
            "--require-hashes",
            "-r",
            str(LOCK),
        ],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Missing(f"The bench extra could not be installed: {done.stderr.strip()[-500:]}")
    made.write_text(wanted, encoding="utf-8")
