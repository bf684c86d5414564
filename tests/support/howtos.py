"""The blocks of the documents that operators follow: which of them a test plays, and why others are not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PAGES = (
    "README.md",
    *(f"docs/how-to/administrators/{name}.md" for name in ("operations", "cluster", "maintenance", "redis")),
)
PART = re.compile(r"^#+ ([^\n]+)$|^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)

MACHINE = ("cluster.md: A DGX Spark with Ollama",)
KEYS = ("cluster.md: What has to be there first (2)",)
SET_UP = ("operations.md: Set up the server",)
PEOPLE = ("operations.md: People, assignments, tokens",)
EVERY_DAY = (
    "README.md: Write an assignment",
    "cluster.md: The cluster in one hand",
    "README.md: 3. Is it well?",
)
BACK_UP = (
    "maintenance.md: Back-up",
    "maintenance.md: Back-up (2)",
)
EVERY_NIGHT = ("maintenance.md: Back-up (5)",)
RESTORE = (
    "maintenance.md: Restore",
    "maintenance.md: Restore (2)",
)
STUDENT = (
    "maintenance.md: What is held on a student",
    "maintenance.md: Erasing a student",
)
UPDATE = ("maintenance.md: Update",)
ROTATION = (
    "maintenance.md: Change passwords and certificates",
    "maintenance.md: Change passwords and certificates (2)",
    "maintenance.md: Change passwords and certificates (3)",
)
WITHOUT_INTERNET = ("cluster.md: Machines without internet",)
MOVE_FROM = ("maintenance.md: Moving to another computer",)
MOVE_TO = ("maintenance.md: Moving to another computer (2)",)
CERTIFICATE = ("redis.md: TLS",)
PLAYED = (
    *(*MACHINE, *KEYS, *SET_UP, *PEOPLE, *EVERY_DAY, *BACK_UP, *EVERY_NIGHT, *RESTORE, *STUDENT),
    *(*UPDATE, *ROTATION, *WITHOUT_INTERNET, *MOVE_FROM, *MOVE_TO, *CERTIFICATE),
)
"""Blocks that tests/integration/deploy/test_howtos.py plays."""

WITHOUT = "`grader setup` does it"
MODELS = "a model is fetched, and no test does that"
MACOS = "macOS"
CONTAINERS = "the image is not built by tests; tests/integration/deploy/test_compose.py checks the file"
DEMO = "tests/integration/cli/test_demo.py runs the demo"
NOT_PLAYED = {
    "README.md: Try it": DEMO,
    "README.md: Try it (3)": DEMO,
    "README.md: Try it (4)": "runs all tests",
    "README.md: 1. The server": "operations.md: Set up the server has the same commands",
    "README.md: 2. The four machines": "operations.md: Set up the server names the machines at once",
    "README.md: 2. The four machines (2)": "operations.md: Set up the server has the same command",
    "operations.md: The server with containers": CONTAINERS,
    "operations.md: A DGX Spark with Ollama": MODELS,
    "operations.md: A Mac Studio with MLX": MACOS,
    "cluster.md: What has to be there first (3)": f"{WITHOUT}; tests/integration/deploy/test_cluster.py",
    "cluster.md: A Mac Studio with MLX": MACOS,
    "cluster.md: By hand": "tests/integration/deploy/test_service_managers.py",
    "maintenance.md: Back-up (6)": CONTAINERS,
    "redis.md: A user a machine": f"{WITHOUT}; tests/integration/broker/test_redis_security.py",
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
    found = (
        block
        for page in PAGES
        for block in _of_page(Path(page).name, (root / page).read_text(encoding="utf-8"))
    )
    return {block.name: block for block in found}


def _of_page(page: str, text: str) -> Iterator[Block]:
    heading, number = "", 0
    for part in PART.finditer(text):
        if part[1]:
            heading, number = part[1], 0
            continue
        number += 1
        name = f"{page}: {heading}" + (f" ({number})" if number > 1 else "")
        yield Block(name, part[2], part[3])
