"""`grader bench`: finds the benchmarks by name, so that nothing outside `bench` imports them."""

from __future__ import annotations

import click

from cli.lazy_group import LazyGroup, Sections


def benchmarks() -> Sections:
    """All benchmarks; each has a module or package of its own."""
    return {
        "Commands": {
            "overhead": "bench.overhead:command",
            "router": "bench.router.command:command",
            "term": "bench.term:command",
            "scale": "bench.scale:command",
            "pages": "bench.pages.command:command",
            "deadline": "bench.deadline.command:command",
            "years": "bench.years.command:command",
            "review": "bench.pages.review:command",
            "engines": "bench.engines.command:command",
            "batches": "bench.batches.command:command",
            "sandbox": "bench.sandbox:command",
            "weights": "bench.weights:command",
            "guarantee": "bench.guarantee.command:command",
            "parity": "bench.parity:command",
            "halved-context": "bench.halved_context:command",
            "files": "bench.files:command",
            "situations": "bench.situations.command:command",
        }
    }


@click.group(cls=LazyGroup, sections=benchmarks)
def bench() -> None:
    """Measure Grader itself."""
