"""What the notes behind this project expected of strategies, beside the arithmetic for the same machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.cluster.cards import GB, GB10, GEMMA, M3_ULTRA, QWEN, Model, prefill_s
from bench.strategies.arithmetic import STRATEGIES, Costs, an_hour, apart, on_cards

LINK_BYTES_S = 9.4e9 / 8
GPT_OSS = Model("gpt-oss:120b", 3.1 * GB, 60.9 * GB, 4 / 128, 5.1e9, 36_864, 4.7e6)
"""36 layers: half of them see 128 tokens. 8 heads of 64 for keys and values; experts in 4.25 bits."""
NOTES: Mapping[str, str] = {
    "sequential": "45 s, 80 an hour",
    "direct": "15 s",
    "regenerate": "35–45 s",
    "overlapped": "22 s, 164 an hour",
}
"""strategy → what the notes say of a submission with GPT-OSS-120B and Qwen; no lengths are given there."""
LENGTHS = ((500, 16), (500, 512), (5000, 16), (5000, 512), (20_000, 200))
Rows = Sequence[tuple[str, ...]]


def submission() -> tuple[Costs, Costs]:
    """Analysis by Qwen and feedback by GPT-OSS, 5,000 tokens of prompt each, on a Spark and an M3 Ultra."""
    analysis = on_cards(GB10, M3_ULTRA, QWEN, 5000, 1200, LINK_BYTES_S)
    feedback = on_cards(GB10, M3_ULTRA, GPT_OSS, 5000, 800, LINK_BYTES_S)
    return apart(analysis), apart(feedback)


def notes() -> Rows:
    """Strategy, what the notes say, seconds of a submission, submissions an hour."""
    first, second = submission()
    found = []
    for name, formula in STRATEGIES.items():
        seconds = formula(first, second)
        found.append((name, NOTES.get(name, "–"), f"{seconds:.1f} s", f"{an_hour(seconds):.0f}"))
    return found


def prompts(count: int = 10) -> Rows:
    """Model, seconds of a Spark to read so many prompts at once, and with 4,000 of 5,000 tokens known."""
    return [
        (
            model.name,
            f"{prefill_s(GB10, model, 5000 * count, count):.1f} s",
            f"{prefill_s(GB10, model, 1000 * count, count):.1f} s",
        )
        for model in (QWEN, GPT_OSS)
    ]


def lengths() -> Rows:
    """Prompt, answer, then seconds by each strategy of two prompts for gemma-3-27b; the least is bold."""
    found = []
    for prompt, output in LENGTHS:
        costs = on_cards(GB10, M3_ULTRA, GEMMA, prompt, output, LINK_BYTES_S)
        seconds = [formula(costs, costs) for formula in STRATEGIES.values()]
        said = [f"**{one:.1f}**" if one == min(seconds) else f"{one:.1f}" for one in seconds]
        found.append((f"{prompt:,}", f"{output}", *said))
    return found
