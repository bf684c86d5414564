"""How the ranks of a pool are started and work."""

from __future__ import annotations

from dataclasses import dataclass

from workers.machine.engines.sharded.protocol import Begin, Mode


@dataclass(frozen=True)
class Settings:
    """How ranks are started and work. Durations in seconds; see `ShardedEngine`."""

    hosts: tuple[str, ...]
    mode: Mode
    slots: int
    prefill_step: int
    prefix_tokens: int
    max_context: int | None
    wired_limit: bool
    remote: str
    load_timeout: float
    step_timeout: float

    def begin(self, rank: int, model: str, seed: int) -> Begin:
        """What a rank is told first."""
        return Begin(
            rank=rank,
            hosts=self.hosts,
            model=model,
            mode=self.mode,
            slots=self.slots,
            prefill_step=self.prefill_step,
            prefix_tokens=self.prefix_tokens,
            max_context=self.max_context,
            wired_limit=self.wired_limit,
            seed=seed,
        )
