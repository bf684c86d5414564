"""Runs `grader` with its intervals divided: `python -m bench.router.time_compression FACTOR ARGUMENTS…`.

Modules are changed as they are imported, before anything reads a constant: importers, default
arguments and values computed from it see the shorter one.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

SCALED: Mapping[str, tuple[str, ...]] = {
    "grading.broker.heartbeats": ("HEARTBEAT_S", "DEAD_AFTER_S", "FRESH_S"),
    "grading.broker.canaries": ("EVERY_S", "OVERDUE_S", "LOST_AFTER_S", "PART_ALIVE_S"),
    "grading.scheduling.speed_curve": ("MEMORY_S", "CERTAIN_S", "FIRM_S"),
    "grading.scheduling.forecast": ("TICK_S", "COMING_FOR_S"),
    "grading.scheduling.speed_estimates": ("NOTHING_KNOWN_S",),
    "grading.scheduling.speed_profile": ("WINDOW_S", "LEAST_WINDOW_S", "RELAX_S", "GAP_S"),
    "grading.scheduling.routing": ("SOON_S",),
    "grading.scheduling.concurrency": (
        "LOOK_S",
        "TRY_S",
        "LONGEST_TRY_S",
        "SETTLE_S",
        "GIVE_UP_S",
        "AGAIN_S",
        "LATEST_AGAIN_S",
        "MEMORY_S",
    ),
    "grading.scheduling.stalls": ("LOADING_S", "CHUNK_S", "WAITING_S", "MARGIN_S"),
    "grading.store.rounds.lifecycle": ("BACKOFF_S",),
    "grading.store.views.status": ("TYPICAL_S",),
    "workers.celery_worker": ("LOOK_EVERY_S", "STEADY_S", "LET_FINISH_S"),
    "workers.machine.circuits": ("PROBE_S",),
    "workers.machine.engines.http.answer": ("PROGRESS_EVERY_S",),
    "workers.machine.engines.openai.schema_support": ("REMEMBER_S", "AGAIN_S"),
    "workers.machine.engines.openai.server": ("REMEMBER_S",),
    "workers.machine.engines.http.exchange": ("FIRST_S", "LONGEST_S"),
    "workers.machine.gateway_requests.serving": ("LOOK_S",),
    "workers.machine.scheduling.queue_selection": ("LOOK_EVERY_S", "RETURN_S", "COMING_S"),
    "workers.machine.scheduling.throughput": ("SAMPLE_S", "SAVE_S", "LOADS_S"),
    "workers.machine.requeue": ("PAUSE_S",),
    "workers.machine.progress": ("EVERY_S", "TWO_S", "LATE_S", "FIRST_S"),
    "workers.machine.model_digests": ("AGAIN_S", "UNKNOWN_AGAIN_S"),
    "workers.server.context": ("EVERY_S",),
    "grading.broker.part_heartbeats": ("HEARTBEAT_S",),
    "workers.server.inbox": ("LOOK_S",),
    "workers.server.lost_runs": ("NOWHERE_S", "FIND_FOR_S", "JUMP_S"),
    "workers.server.admit": ("NOTHING_S", "FULL_S"),
    "workers.server.sweeper": (
        "EVERY_S",
        "STILL_S",
        "UNANNOUNCED_S",
        "BUSY_S",
        "EXECUTE_S",
        "EXECUTE_BUSY_S",
    ),
}
"""module -> constants, in seconds, that are divided by the factor before anything reads them."""

_LIMIT = "bounds what computers really take, which does not get quicker"
_KEEPING = "is how long something is kept, in whole seconds, and longer than the benchmark"
_BUCKETS = "are bounds of figures for people"
_TINY = "only keeps figures above nought"
_UNUSED = "is not run in the benchmark"
EXEMPT: Mapping[str, str] = {
    "grading.broker.heartbeats.KEEP_S": _KEEPING,
    "grading.broker.dispatch": _LIMIT,
    "grading.broker.sentinels": _LIMIT,
    "grading.integrations.oidc": _UNUSED,
    "grading.store.accounts.single_sign_on": _UNUSED,
    "grading.store.object_store": _UNUSED,
    "workers.celery_worker.SUCCESSOR_S": _LIMIT,
    "workers.server.file_mover": _UNUSED,
    "grading.integrations.canvas": _LIMIT,
    "grading.broker.canaries.KEEP_S": _KEEPING,
    "grading.broker.rate_counts": _LIMIT,
    "grading.broker.criterion_claims": _UNUSED,
    "grading.broker.viewers": _UNUSED,
    "grading.shared.certificates": _LIMIT,
    "grading.broker.canaries.FORGET_PARTS_S": _KEEPING,
    "grading.scheduling.speed_curve.LEAST_S": _TINY,
    "grading.scheduling.speed_profile.LEAST_S": _TINY,
    "grading.broker.gateway_requests": _LIMIT,
    "grading.broker.leases.KEEP_S": _KEEPING,
    "grading.integrations.lti": _LIMIT,
    "grading.broker.redis_acl": _LIMIT,
    "grading.broker.redis_key_types": _KEEPING,
    "grading.broker.lua_scripts": _LIMIT,
    "grading.shared.cache": _KEEPING,
    "grading.store.privacy.backup": _UNUSED,
    "grading.store.periodic_tasks": _KEEPING,
    "grading.store.database": _LIMIT,
    "grading.store.privacy.erasure": _UNUSED,
    "grading.store.reporting.metrics": _BUCKETS,
    "grading.shared.telemetry": _LIMIT,
    "grading.broker.erasure": _KEEPING,
    "workers.sandbox": _UNUSED,
    "workers.machine.engines.mlx.decode_loop": _UNUSED,
    "workers.machine.engines.openai.schema_support.LOOK_S": _LIMIT,
    "workers.machine.engines.openai.schema_support.MOST_S": _LIMIT,
    "workers.machine.engines.openai.schema_support.DAY_S": _KEEPING,
    "workers.machine.engines.openai.server.COUNT_S": _LIMIT,
    "workers.machine.engines.openai.server.LOOK_S": _LIMIT,
    "workers.machine.diagnostics": _UNUSED,
    "workers.machine.idle": _UNUSED,
    "workers.server.shadow_runs": _UNUSED,
    "workers.machine.gateway_requests.request": _LIMIT,
    "workers.machine.engines.remote_prefill": _UNUSED,
    "workers.machine.scheduling.throughput.KEEP_S": _KEEPING,
    "workers.machine.results": _LIMIT,
    "workers.machine.engines.sharded": _UNUSED,
    "workers.machine.stages.run._LEAST_FOR_REPAIR_S": _LIMIT,
    "workers.machine.start.BREAK_OFF_S": _LIMIT,
    "workers.machine.model_digests.PATIENCE_S": _LIMIT,
    "workers.machine.model_digests.BEFORE_S": _LIMIT,
    "workers.machine.model_digests.AFTER_S": _LIMIT,
    "workers.machine.engines.ollama.capacity.LEAST_S": _LIMIT,
    "workers.machine.strategy_comparison": _UNUSED,
    "grading.broker.token_use": _UNUSED,
    "workers.server.delivery": _UNUSED,
    "workers.server.sweeper.PREPARE_FOR_S": _LIMIT,
    "workers.server.sweeper.PREPARE_LEASE_S": _LIMIT,
    "workers.celery_worker.SWITCH_S": _LIMIT,
}
"""module or module.CONSTANT -> why it keeps its value."""

CLOCK = (
    "tonumber(redis.call('TIME')[1])",
    "(function() local t = redis.call('TIME') return t[1] + t[2] / 1000000 end)()",
)
"""Scripts in Redis read its clock in whole seconds, which are far too long in compressed time."""


def edits(factor: float) -> Mapping[str, Sequence[tuple[str, str]]]:
    """module -> what else is written otherwise there, old and new."""
    handed = ("'PX', 1000", f"'PX', {max(1, round(1000 / factor))}")  # ms for which a machine is no more idle
    # the emulated servers send few pieces, with as many characters as tokens
    piece = ("self.chunks += 1", "self.chunks += max(1, len(text))")
    return {
        "grading.broker.canaries": [CLOCK],
        "grading.scheduling.circuit_breaker": [
            (f"{name}: float = {value}", f"{name}: float = {value / factor}")
            for name, value in (("within_s", 600.0), ("first_s", 5.0), ("most_s", 60.0))
        ],
        "grading.broker.lua_scripts": [CLOCK, handed],
        "workers.machine.engines.http.answer": [piece],
    }


MOST = 20.0
"""The largest factor: beyond it, what computers really take is no small part of what is measured."""
_HOOK = "_shorter"


def shorter(value: Any, factor: float) -> Any:
    """A duration, or all durations of a tuple or mapping, divided by the factor."""
    if isinstance(value, Mapping):
        return {key: shorter(one, factor) for key, one in value.items()}
    if isinstance(value, tuple):
        return tuple(shorter(one, factor) for one in value)
    return value / factor


class _Loader(SourceFileLoader):
    """Loads a module with some of its constants divided."""

    def __init__(self, name: str, path: str, factor: float) -> None:
        super().__init__(name, path)
        self._factor = factor

    def exec_module(self, module: ModuleType) -> None:
        """Run the module's code; `_shorter` is there for it."""
        setattr(module, _HOOK, lambda value: shorter(value, self._factor))
        super().exec_module(module)

    def get_code(self, fullname: str) -> CodeType:
        """Compiled anew each time, and never kept."""
        source = self.get_data(self.path).decode("utf-8")
        for old, new in edits(self._factor).get(fullname, ()):
            if old not in source:
                raise LookupError(f"{fullname} has no longer {old!r}, which compressed time changes")
            source = source.replace(old, new)
        tree = _Divide(SCALED.get(fullname, ())).visit(ast.parse(source, self.path))
        code: CodeType = compile(ast.fix_missing_locations(tree), self.path, "exec", dont_inherit=True)
        return code


class _Divide(ast.NodeTransformer):
    """`NAME = value` of the module becomes `NAME = _shorter(value)`."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = set(names)

    def visit_Module(self, node: ast.Module) -> ast.Module:
        for line in node.body:
            if isinstance(line, ast.Assign | ast.AnnAssign) and line.value and self._ours(line):
                line.value = ast.Call(ast.Name(_HOOK, ast.Load()), [line.value], [])
        if self._names:
            raise LookupError(f"there is no constant {', '.join(sorted(self._names))}")
        return node

    def _ours(self, line: ast.Assign | ast.AnnAssign) -> bool:
        targets = line.targets if isinstance(line, ast.Assign) else [line.target]
        found = {target.id for target in targets if isinstance(target, ast.Name)} & self._names
        self._names -= found
        return bool(found)


class _Finder(MetaPathFinder):
    """Finds the modules of the table."""

    def __init__(self, factor: float) -> None:
        self._factor = factor

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """A spec with a loader that divides; nothing for other modules."""
        if fullname not in SCALED and fullname not in edits(self._factor):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None:
            return None
        spec.loader = _Loader(fullname, spec.origin, self._factor)
        return spec


def install(factor: float) -> None:
    """Divide from now on, in this process. Raises ValueError if a module of the table was imported before."""
    if not 1 <= factor <= MOST:
        raise ValueError(f"the factor must be between 1 and {MOST:g}")
    if before := sorted({*SCALED, *edits(factor)} & set(sys.modules)):
        raise ValueError(f"imported before its constants could be divided: {before[0]}")
    sys.meta_path.insert(0, _Finder(factor))
    from kombu.transport.redis import Transport

    # how long a worker reads the queues that it chose last
    Transport.brpop_timeout = 1 / factor  # type: ignore[assignment]


def main() -> None:
    """Run `grader` so."""
    factor, *arguments = sys.argv[1:]
    install(float(factor))
    sys.argv = ["grader", *arguments]
    from cli.main import main as grader

    grader()


if __name__ == "__main__":
    main()
