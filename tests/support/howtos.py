"""The blocks of commands in the documents: which of them a test plays, and why others are not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PART = re.compile(r"^#+ ([^\n]+)$|^ *```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
"""A heading, or a fenced block, which stands in a list where it is indented."""

MACHINE = ("cluster.md: A DGX Spark with Ollama",)
KEYS = ("cluster.md: Before the first deployment (2)",)
SET_UP = ("server.md: Set up the server",)
PEOPLE = ("server.md: Add people, an assignment and a token",)
EVERY_DAY = ("README.md: Set it up (2)", "cluster.md: Set up the machines", "server.md: Check the server")
BACK_UP = ("maintenance.md: Back up", "maintenance.md: Back up (2)")
EVERY_NIGHT = ("maintenance.md: Back up (5)",)
RESTORE = ("maintenance.md: Restore", "maintenance.md: Restore (2)")
STUDENT = ("maintenance.md: Export what is stored about a student", "maintenance.md: Erase a student")
UPDATE = ("maintenance.md: Update",)
ROTATION = (
    "maintenance.md: Change passwords and certificates",
    "maintenance.md: Change passwords and certificates (2)",
    "maintenance.md: Change passwords and certificates (3)",
)
WITHOUT_INTERNET = ("cluster.md: Machines without internet",)
MOVE_FROM = ("maintenance.md: Move to another computer",)
MOVE_TO = ("maintenance.md: Move to another computer (2)",)
CERTIFICATE = ("redis.md: Use TLS",)
PLAYED = (
    *(*MACHINE, *KEYS, *SET_UP, *PEOPLE, *EVERY_DAY, *BACK_UP, *EVERY_NIGHT, *RESTORE, *STUDENT),
    *(*UPDATE, *ROTATION, *WITHOUT_INTERNET, *MOVE_FROM, *MOVE_TO, *CERTIFICATE),
)
"""Blocks that tests/integration/deploy/test_howtos.py plays."""

MODELS = "needs a real machine: a model is downloaded"
MACHINES = "needs real machines"
MACOS = "needs a real machine: macOS"
CONTAINERS = "needs a container engine; tests/integration/deploy/test_compose.py checks the file"
HOSTS = "needs three hosts; tests/integration/deploy/test_several_hosts.py runs the scripts of the file"
CLUSTER = "needs a cluster; tests/unit/deploy/test_kubernetes.py checks the manifests"
RELEASE = "tests/unit/project/test_release.py"
PLATFORM = "needs a real platform; tests/integration/lti and integrations have stand-ins"
WEBHOOKS = "tests/integration/integrations/test_webhook_events.py runs these commands with secrets of its own"
TESTS = "runs tests"
CLUSTERS = "tests/faults/store/test_failover.py and test_point_in_time.py do the same on one computer"
BENCH = "a benchmark, which runs for minutes"
OBJECT_STORE = "tests/faults/store/test_object_store.py runs them against a server that speaks S3"
NOT_PLAYED = {
    "README.md: Try it": "tests/integration/cli/test_demo.py runs the demo, and make test is what runs",
    "README.md: Set it up": "server.md: Set up the server has the same commands",
    "demo.md: Start it": "tests/integration/cli/test_demo.py runs the demo",
    "demo.md: Use the commands on the running demo": "tests/integration/cli/test_demo.py runs the demo",
    "submit.md: Keep the receipt": "tests/integration/submissions/test_submit_pages.py verifies a receipt so",
    "server.md: In containers": CONTAINERS,
    "maintenance.md: Back up (6)": CONTAINERS,
    "several-hosts.md: Update without an interruption": "tests/faults/web/test_two_hosts.py restarts two so",
    "files.md: How files move": OBJECT_STORE,
    "files.md: Back up and restore": "rclone is one of many, and needs a store of its own",
    "files.md: Back up and restore (2)": OBJECT_STORE,
    "monitoring.md: Prometheus, Grafana and Flower in containers": CONTAINERS,
    "sandbox.md: Three kinds": CONTAINERS,
    "several-hosts.md: Add a host": "tests/integration/setup/test_bare_server.py plays it",
    "several-hosts.md: Add a host (2)": "tests/integration/setup/test_bare_server.py plays it",
    "several-hosts.md: Three hosts in containers (2)": HOSTS,
    "several-hosts.md: Three hosts in containers (3)": HOSTS,
    "several-hosts.md: Update containers": HOSTS,
    "several-hosts.md: Take a host out behind nginx": "tests/faults/web/test_two_hosts.py stops one so",
    "several-hosts.md: When the old primary is back": HOSTS,
    "kubernetes.md: Start": CLUSTER,
    "kubernetes.md: The sandbox worker": CLUSTER,
    "kubernetes.md: Update": CLUSTER,
    "releases.md: Make one": RELEASE,
    "releases.md: The key": RELEASE,
    "releases.md: Verify one": RELEASE,
    "cluster.md: A DGX Spark with Ollama (2)": MODELS,
    "cluster.md: A Mac Studio with MLX": MACOS,
    "cluster.md: Before the first deployment (3)": "tests/integration/deploy/test_cluster.py",
    "cluster.md: Without SSH": "tests/integration/deploy/test_service_managers.py",
    "doctor.md: Check the installation": "tests/integration/cli/test_doctor.py",
    "planning.md: Plan how long a class takes": "tests/unit/scheduling/test_capacity_plan.py",
    "planning.md: Plan a term": "tests/unit/scheduling/test_term.py plays a smaller term",
    "planning.md: Rehearse a class": "tests/e2e/machine/test_four_machines.py rehearses on its machines",
    "gateway.md: Turn it on (2)": "tests/integration/gateway/test_gateway.py",
    "doctor.md: Measure whether a strategy pays": "tests/e2e/machine/test_four_machines.py asks its machines",
    "hybrid.md: When it pays": MACHINES,
    "sharded.md: When it pays": MACHINES,
    "hybrid.md: Set it up (2)": MACHINES,
    "hybrid.md: Set it up (3)": f"{MACHINES} with CUDA",
    "hybrid.md: Set it up (4)": MACHINES,
    "canvas.md: Register it in Grader": PLATFORM,
    "canvas.md: Set up the bridge (2)": PLATFORM,
    "canvas.md: Set up the bridge (3)": PLATFORM,
    "moodle.md: Register by hand": PLATFORM,
    "lti.md: Connect Brightspace, Blackboard and others": PLATFORM,
    "postgresql.md: Set up a replica": CLUSTERS,
    "postgresql.md: Set up a replica (2)": CLUSTERS,
    "postgresql.md: Set up a replica (4)": CLUSTERS,
    "postgresql.md: Stop waiting for a replica": CLUSTERS,
    "postgresql.md: Promote the replica": CLUSTERS,
    "postgresql.md: Promote the replica (2)": HOSTS,
    "postgresql.md: Promote the replica (3)": CLUSTERS,
    "postgresql.md: Promote the replica (4)": HOSTS,
    "postgresql.md: Promote the replica (5)": CLUSTERS,
    "postgresql.md: Promote the replica (6)": HOSTS,
    "postgresql.md: Make the old primary the replica": CLUSTERS,
    "postgresql.md: Make the old primary the replica (2)": CLUSTERS,
    "postgresql.md: Back up the log, and go back to a moment": CLUSTERS,
    "postgresql.md: Back up the log, and go back to a moment (2)": CLUSTERS,
    "redis.md: One user for each machine": "tests/integration/broker/test_redis_security.py",
    "redis.md: A successor": "tests/integration/broker/test_successor.py",
    "redis.md: A successor (5)": "tests/integration/broker/test_successor.py",
    "events.md: Try it on one computer": WEBHOOKS,
    "events.md: Resume a paused receiver": WEBHOOKS,
    "webhooks.md: Change secrets": WEBHOOKS,
    "events.md: Set up a receiver (3)": WEBHOOKS,
    "events.md: Set up a receiver (4)": WEBHOOKS,
    "webhooks.md: Set up a connection (2)": WEBHOOKS,
    "webhooks.md: Set up a connection (3)": WEBHOOKS,
    "cli.md: Commands": "tests/unit/cli/test_help.py completes",
    "reliability.md: Run the tests": TESTS,
    "sandbox.md: How to check it": TESTS,
    "benchmarks.md: Cost beside a bare Celery chord": BENCH,
    "benchmarks.md: Sandbox": BENCH,
    "benchmarks.md: Engines": BENCH,
    "benchmarks.md: Batches": BENCH,
    "benchmarks.md: Pages": BENCH,
    "years.md: Years of data": BENCH,
    "benchmarks-router.md: Benchmarks of the router": BENCH,
    "scale.md: Scale": BENCH,
    "model-faults.md: What real servers do": "tests/integration/engines/test_real_servers.py plays them",
    "http-api.md: HTTP API": "tests/integration/api/test_generated_client.py generates a client",
}
"""Blocks of commands that are not played there, and why."""


@dataclass(frozen=True)
class Block:
    """A fenced block. Its name is page and heading, with a number where that has several."""

    name: str
    language: str
    text: str


def blocks(root: Path) -> dict[str, Block]:
    """All blocks of the pages by their names."""
    pages = [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").rglob("*.md"))]
    found = (block for page in pages for block in _of_page(page.name, page.read_text(encoding="utf-8")))
    return {block.name: block for block in found}


def calls(block: Block) -> list[str]:
    """The commands of a block that only asks the HTTP API, continued lines joined; nothing of others."""
    lines = block.text.replace("\\\n", " ").splitlines()
    asked = [line for line in lines if line.startswith("curl ")]
    others = [line for line in lines if line and line not in asked and not re.match("#|[A-Z]+=", line)]
    return [] if others else asked


def _of_page(page: str, text: str) -> Iterator[Block]:
    heading, number = "", 0
    for part in PART.finditer(text):
        if part[1]:
            heading, number = part[1], 0
            continue
        number += 1
        name = f"{page}: {heading}" + (f" ({number})" if number > 1 else "")
        yield Block(name, part[2], part[3])
