"""Whether model servers have room for what config.toml lets a machine send them: slots, contexts, memory.

What does not fit waits in a server's own queue, where nobody sees it, or is shortened more than is expected.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cli.doctor.finding import Finding, ok, warning
from cli.output import counted
from grading.config.settings import EngineSettings, Machine


def compare(name: str, machine: Machine, model: Mapping[str, Any]) -> Iterator[Finding]:
    """What a server told of one model, beside the settings of the machine that examined itself."""
    told = model.get("capacity")
    if not told:  # it failed, or its engine knows nothing of that
        return
    slots, context, cache = (told.get(key) for key in ("slots", "context_tokens", "cache_tokens"))
    check = f"{name} capacity for {model['model']}"
    allowed = (machine.engines.get(model["engine"]) or EngineSettings()).context_tokens
    wanted = machine.slots_of(model["engine"])
    found = [
        *_slots(check, slots, wanted, told.get("slots_setting", "")),
        *_context(check, context, allowed, told.get("context_setting", "")),
        *_cache(check, cache, min(allowed, context or allowed), wanted),
    ]
    if not found and (slots or context):
        parts = [f"{slots} at once" if slots else "", f"{context:,} tokens each" if context else ""]
        yield ok(check, f"enough: {', '.join(filter(None, parts))}")
    yield from found


def _slots(check: str, slots: int | None, wanted: int, setting: str) -> Iterator[Finding]:
    if slots is not None and slots < wanted:
        message = (
            f"the server works on {slots} at once; config.toml gives it {wanted} slots, "
            "so the others would wait in the server's queue"
        )
        remedy = f"set the server's {setting} to {wanted}, or slots = {slots} in config.toml"
        yield warning("server_slots_fewer", f"{check}: slots", message, remedy)


def _context(check: str, context: int | None, allowed: int, setting: str) -> Iterator[Finding]:
    if context is not None and context < allowed:
        message = (
            f"the server has {context:,} tokens for each; config.toml has context_tokens = {allowed}, "
            "so longer submissions are shortened or fail"
        )
        remedy = f"set context_tokens = {context} in config.toml, or raise the server's {setting}"
        yield warning("server_context_shorter", f"{check}: context", message, remedy)


def _cache(check: str, cache: int | None, each: int, wanted: int) -> Iterator[Finding]:
    """The longest submissions, one in each slot, have room in the KV cache."""
    if cache is not None and cache < each * wanted:
        message = (
            f"the server's KV cache has {cache:,} tokens: {counted(cache // each, 'submission')} of {each:,} "
            f"tokens at once, while it gets {wanted} slots; others would wait in the server's queue"
        )
        fits = max(1, cache // wanted)
        remedy = f"give the server more memory, or set context_tokens = {fits} or fewer slots in config.toml"
        yield warning("server_cache_small", f"{check}: memory", message, remedy)
