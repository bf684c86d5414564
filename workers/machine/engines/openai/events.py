"""Reads the stream of server-sent events of a chat: text, thoughts, counts and times, as servers differ."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from grading.domain.jobs import Timings, Tokens
from workers.machine.engines.http.answer import Answer, lines
from workers.machine.engines.http.errors import broke_off, garbled
from workers.machine.engines.http.watch import Watch

FIELDS = (b"event", b"id", b"retry", b"data")
"""What lines of an event stream begin with, beside comments."""
FINISHED = ("stop", "length")


@dataclass
class Reading:
    """The state of one stream."""

    watch: Watch
    answer: Answer
    where: str
    finish: str = ""
    strange: bool = False
    """A line came that is not of an event stream."""
    failed: bool = False
    """The server called the next data an error."""
    tokens: Tokens = field(default_factory=Tokens)
    timings: Timings = field(default_factory=Timings)

    def read(self, chunks: Iterator[bytes]) -> None:
        """Take events up to `[DONE]`; a stream that ends unfinished raises an EngineError."""
        try:
            for line in lines(chunks):
                if line.startswith(b":"):  # a comment: mlx_lm.server tells so how far the prompt is
                    self.watch.arrived(token=False)
                elif line.startswith(b"data:"):
                    data = line[5:].strip()
                    if data == b"[DONE]":
                        break
                    self._event(json.loads(data))
                elif line.startswith(b"error:"):  # older llama-servers
                    self._fail(json.loads(line[6:]))
                elif line.startswith(b"event:"):
                    self.failed = line[6:].strip() == b"error"
                elif line and not line.startswith(FIELDS):
                    self.strange = True
        except (ValueError, TypeError, KeyError, AttributeError, IndexError) as exc:
            raise garbled(self.where) from exc
        if not self.finish and self.strange:
            raise garbled(self.where)
        if not self.finish:
            raise broke_off(self.where, "its last part is missing")
        if self.finish not in FINISHED:
            raise broke_off(self.where, f"it stopped with {self.finish[:100]!r}")

    def _event(self, event: dict[str, Any]) -> None:
        if self.failed or event.get("error"):
            self._fail(event.get("error") or event)
        if usage := event.get("usage"):
            self.tokens = _tokens(usage)
        if times := event.get("timings"):
            self._timed(times)
        elif stats := event.get("stats"):
            self.timings = Timings(
                prompt_s=stats.get("time_to_first_token"), output_s=stats.get("generation_time")
            )
        for choice in (event.get("choices") or [])[:1]:
            delta = choice.get("delta") or {}
            text = str(delta.get("content") or "")
            # vLLM gives the same thought under both names
            thought = str(delta.get("reasoning_content") or delta.get("reasoning") or "")
            self.watch.arrived(token=bool(text or thought))
            self.answer.add(text, thought=thought)
            self.finish = str(choice.get("finish_reason") or self.finish)

    def _fail(self, error: Any) -> None:
        said = (error.get("message") or "") if isinstance(error, dict) else error
        raise broke_off(self.where, " ".join(str(said or "an error without a word").split())[:300])

    def _timed(self, times: dict[str, Any]) -> None:
        """llama-server's own clock, in milliseconds; it counts what it took from its cache there, too."""
        prompt, output = times.get("prompt_ms"), times.get("predicted_ms")
        self.timings = Timings(
            prompt_s=None if prompt is None else max(0.0, float(prompt)) / 1000,
            output_s=None if output is None else max(0.0, float(output)) / 1000,
        )
        cached = int(times.get("cache_n") or 0)
        known = self.tokens
        self.tokens = Tokens(
            prompt=known.prompt or cached + int(times.get("prompt_n") or 0),
            cached=known.cached or cached,
            output=known.output or int(times.get("predicted_n") or 0),
        )


def _tokens(usage: dict[str, Any]) -> Tokens:
    details = usage.get("prompt_tokens_details") or {}
    return Tokens(
        prompt=int(usage.get("prompt_tokens") or 0),
        cached=int(details.get("cached_tokens") or 0),
        output=int(usage.get("completion_tokens") or 0),
    )
