"""Engines do the work of people; what machines ask of them beside it is listed in the documentation."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SUBMITTED = ""
"""Runs of students, and gateway requests."""
ASKS = {
    "workers/machine/worker.py": SUBMITTED,
    "workers/machine/stages/run.py": SUBMITTED,
    "workers/machine/gateway_requests/request.py": SUBMITTED,
    "workers/machine/engines/ollama/engine.py": SUBMITTED,
    "workers/machine/diagnostics.py": "`grader doctor`",
    "workers/machine/engines/ollama/capacity.py": "`grader doctor`",
    "workers/machine/rehearsal.py": "`grader rehearse`",
    "workers/machine/shadow_runs.py": "shadow runs",
    "workers/machine/strategy_comparison.py": "`grader doctor --strategies`",
    "workers/machine/circuits.py": "probe of a circuit",
    "workers/machine/engines/openai/engine.py": "question about schemas",
    "workers/machine/engines/openai/fingerprint.py": "fingerprint of a model",
    "workers/machine/engines/remote_prefill/engine.py": "reading of the `hybrid` engine",
}
"""Modules that have something generated, with the row of docs/reference/engines.md that tells of it."""
CALLS = {"generate", "chat", "run_stage", "probe"}
PAGES = ("/completions", "/completion", "/generate", "/chat")


def asks(path: Path) -> Iterator[str]:
    """What a module has generated: by a call of an engine, or at a server's page."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in CALLS:
                yield name
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.endswith(PAGES):
            yield node.value


def test_whatever_is_generated_is_for_people_or_documented(root: Path) -> None:
    found = {
        path.relative_to(root).as_posix()
        for path in (root / "workers").rglob("*.py")
        if "sandbox" not in path.parts and any(asks(path))
    }
    assert found == set(ASKS), "add it here, and its row to docs/reference/engines.md"
    text = (root / "docs" / "reference" / "engines.md").read_text("utf-8")
    section = text.partition("## Work that nobody submitted\n")[2].partition("\n## ")[0]
    rows = {line.split(" | ")[0].removeprefix("| ") for line in section.splitlines() if line.startswith("| ")}
    assert rows - {"what", "---"} == set(ASKS.values()) - {SUBMITTED}
