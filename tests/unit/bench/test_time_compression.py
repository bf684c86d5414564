"""Compressed time: every interval of the product is divided, or there is a reason why not."""

from __future__ import annotations

import ast
import importlib
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

from bench.router import time_compression

ROOT = Path(__file__).parents[3]
SHOW = """
import importlib, json
from bench.router.time_compression import install
from bench.router.time_compression import SCALED, edits
install(10)
found = {}
for module in (*SCALED, *edits(10)):
    loaded = importlib.import_module(module)
    found |= {f"{module}.{name}": getattr(loaded, name) for name in SCALED.get(module, ())}
from kombu.transport.redis import Transport
from grading.broker.lua_scripts import HEARTBEAT
from workers.machine.worker import HEARTBEAT_S
from grading.scheduling.circuit_breaker import RULES
more = {"brpop": Transport.brpop_timeout, "lua": HEARTBEAT, "imported": HEARTBEAT_S, "rules": RULES.first_s}
print(json.dumps([found, more]))
"""


def names(line: ast.stmt) -> Iterator[str]:
    targets = line.targets if isinstance(line, ast.Assign) else []
    targets = [line.target] if isinstance(line, ast.AnnAssign) else targets
    for target in targets:
        parts = target.elts if isinstance(target, ast.Tuple) else [target]
        yield from (part.id for part in parts if isinstance(part, ast.Name))


@cache
def constants() -> Sequence[tuple[str, str]]:
    """(module, name) of everything in seconds that the processes of the product may read."""
    found: list[tuple[str, str]] = []
    for package in ("grading", "workers"):
        for path in sorted((ROOT / package).rglob("*.py")):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            for line in ast.parse(path.read_text(encoding="utf-8")).body:
                found += ((module, name) for name in names(line) if name.endswith("_S"))
    return found


def exempt(module: str, name: str) -> bool:
    whole = f"{module}.{name}"
    return any(whole == one or whole.startswith(f"{one}.") for one in time_compression.EXEMPT)


def test_every_interval_is_divided_or_exempt_for_a_reason() -> None:
    left = [
        f"{m}.{n}" for m, n in constants() if n not in time_compression.SCALED.get(m, ()) and not exempt(m, n)
    ]
    assert left == [], "say in bench/router/time_compression.py whether compressed time divides these"


def test_nothing_is_both_and_no_entry_is_left_over() -> None:
    known = constants()
    assert [f"{m}.{n}" for m, all_ in time_compression.SCALED.items() for n in all_ if exempt(m, n)] == []
    unused = [
        e for e in time_compression.EXEMPT if not any(f"{m}.{n}.".startswith(f"{e}.") for m, n in known)
    ]
    assert unused == []
    assert all(reason for reason in time_compression.EXEMPT.values())


def test_constants_are_divided_for_whoever_reads_them() -> None:
    shown = subprocess.run([sys.executable, "-c", SHOW], cwd=ROOT, capture_output=True, text=True, check=True)
    found, more = json.loads(shown.stdout)
    for whole, value in found.items():
        module, _, name = whole.rpartition(".")
        usual = json.loads(
            json.dumps(time_compression.shorter(getattr(importlib.import_module(module), name), 10))
        )
        assert value == pytest.approx(usual) if isinstance(value, float) else value == usual, whole
    assert more["brpop"] == 0.1
    assert more["imported"] == pytest.approx(0.3)  # another module's, by `from … import`
    assert more["rules"] == pytest.approx(0.5)
    assert "1000000" in more["lua"]  # heartbeats have fractions of a second


def test_it_refuses_what_would_be_half_done() -> None:
    with pytest.raises(ValueError, match="between 1 and 20"):
        time_compression.install(50)
    importlib.import_module("grading.broker.leases")
    with pytest.raises(ValueError, match="imported before"):
        time_compression.install(10)


def test_a_constant_that_is_gone_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(time_compression.SCALED, "grading.broker.heartbeats", ("GONE_S",))  # type: ignore[attr-defined]
    finder = time_compression._Finder(10)
    spec = finder.find_spec("grading.broker.heartbeats", importlib.import_module("grading.broker").__path__)
    assert spec is not None
    with pytest.raises(LookupError, match="GONE_S"):
        spec.loader.get_code("grading.broker.heartbeats")  # type: ignore[union-attr, attr-defined]
