"""Which intervals of the product are shortened when it runs in compressed time; which are not, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

SCALED: Mapping[str, tuple[str, ...]] = {
    "grading.broker.backlog": ("FRESH_S",),
    "grading.broker.heartbeats": ("BEAT_S", "DEAD_AFTER_S"),
    "grading.broker.canaries": ("EVERY_S", "OVERDUE_S", "LOST_AFTER_S", "PART_ALIVE_S"),
    "grading.scheduling.speed_curve": ("MEMORY_S", "CERTAIN_S", "FIRM_S"),
    "grading.scheduling.eta": ("TICK_S", "COMING_FOR_S"),
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
    "workers.canary": ("LOOK_EVERY_S", "STEADY_S", "LET_FINISH_S"),
    "workers.machine.circuits": ("PROBE_S",),
    "workers.machine.engines.http.answer": ("PROGRESS_EVERY_S",),
    "workers.machine.engines.openai.schemas": ("REMEMBER_S", "AGAIN_S"),
    "workers.machine.engines.openai.server": ("REMEMBER_S", "AGAIN_S"),
    "workers.machine.engines.http.exchange": ("FIRST_S", "LONGEST_S"),
    "workers.machine.gateway_requests.serving": ("LOOK_S",),
    "workers.machine.scheduling.queue_selection": ("LOOK_EVERY_S", "RETURN_S", "COMING_S"),
    "workers.machine.scheduling.throughput": ("SAMPLE_S", "SAVE_S", "LOADS_S"),
    "workers.machine.requeue": ("PAUSE_S",),
    "workers.machine.progress": ("EVERY_S", "TWO_S", "LATE_S", "FIRST_S"),
    "workers.machine.model_digests": ("AGAIN_S", "UNKNOWN_AGAIN_S"),
    "workers.server.backlog": ("EVERY_S",),
    "workers.server.canary": ("BEAT_S",),
    "workers.server.inbox": ("LOOK_S",),
    "workers.server.lost_runs": ("NOWHERE_S", "FIND_FOR_S", "JUMP_S"),
    "workers.server.admit": ("NOTHING_S", "FULL_S"),
    "workers.server.sweeper": ("EVERY_S", "STILL_S", "UNANNOUNCED_S", "BUSY_S", "TRIAL_S", "TRIAL_BUSY_S"),
}
"""module -> constants, in seconds, that are divided by the factor before anything reads them."""

_LIMIT = "bounds what computers really take, which does not get quicker"
_KEEPING = "is how long something is kept, in whole seconds, and longer than the benchmark"
_BUCKETS = "are bounds of figures for people"
_TINY = "only keeps figures above nought"
_UNUSED = "is not run in the benchmark"
EXEMPT: Mapping[str, str] = {
    "grading.broker.backlog.KEEP_S": _KEEPING,
    "grading.broker.redis_breaker": _LIMIT,
    "grading.integrations.canvas": _LIMIT,
    "grading.broker.canaries.KEEP_S": _KEEPING,
    "grading.broker.canaries.FORGET_PARTS_S": _KEEPING,
    "grading.scheduling.speed_curve.LEAST_S": _TINY,
    "grading.scheduling.stage_profile.LEAST_S": _TINY,
    "grading.broker.gateway_requests": _LIMIT,
    "grading.broker.leases.KEEP_S": _KEEPING,
    "grading.integrations.lti": _LIMIT,
    "grading.broker.redis_guard": _LIMIT,
    "grading.broker.redis_keys": _KEEPING,
    "grading.broker.lua_scripts": _LIMIT,
    "grading.shared.cache": _KEEPING,
    "grading.store.privacy.backup": _UNUSED,
    "grading.store.periodic_tasks": _KEEPING,
    "grading.store.database": _LIMIT,
    "grading.store.privacy.erasure": _UNUSED,
    "grading.store.reporting.metrics": _BUCKETS,
    "grading.shared.tracing": _LIMIT,
    "grading.broker.purge": _KEEPING,
    "workers.sandbox": _UNUSED,
    "workers.machine.engines.mlx.decode_loop": _UNUSED,
    "workers.machine.engines.openai.schemas.LOOK_S": _LIMIT,
    "workers.machine.engines.openai.server.MEASURE_S": _LIMIT,
    "workers.machine.engines.openai.server": _LIMIT,
    "workers.machine.diagnostics": _UNUSED,
    "workers.machine.gateway_requests.request": _LIMIT,
    "workers.machine.engines.remote_prefill": _UNUSED,
    "workers.machine.scheduling.throughput.KEEP_S": _KEEPING,
    "workers.machine.results": _LIMIT,
    "workers.machine.engines.sharded": _UNUSED,
    "workers.machine.stages.run._LEAST_FOR_REPAIR_S": _LIMIT,
    "workers.machine.start.BREAK_OFF_S": _LIMIT,
    "workers.machine.model_digests.PATIENCE_S": _LIMIT,
    "workers.server.delivery": _UNUSED,
    "workers.server.sweeper.PREPARE_FOR_S": _LIMIT,
    "workers.server.sweeper.PREPARE_LEASE_S": _LIMIT,
    "workers.celery_worker": _LIMIT,
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
        "grading.broker.lua": [CLOCK, handed],
        "workers.machine.engines.http.answer": [piece],
    }
