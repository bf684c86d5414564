"""The answer of a model as it arrives: the chat it answers, its bounds, and its text without thoughts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from grading.domain.errors import OutputEmpty, OutputEndless, OutputTruncated
from grading.domain.messages import Message
from workers.machine.engines.base import Progress, Request
from workers.machine.engines.http.exchange import Watch
from workers.machine.messages import NO_WORD_BEFORE_LIMIT, ONLY_WHITE_SPACE, TEXT_TOO_LONG, TOO_MANY_TOKENS

MAX_TEXT_BYTES = 200_000
MAX_BLANKS = 1_000
"""Characters of white space in a row; models bound to JSON can go on with them for ever."""
PROGRESS_EVERY_S = 0.3


def messages(request: Request) -> list[dict[str, Any]]:
    """The chat of a request: system and user; on a repair try also the first answer and what was wrong.

    A gateway request's as it came.
    """
    if request.chat:
        return [dict(one) for one in request.chat]
    chat = [{"role": "system", "content": request.system}, {"role": "user", "content": request.user}]
    if request.repair:
        chat.append({"role": "assistant", "content": request.previous})
        chat.append({"role": "user", "content": request.repair})
    return chat


@dataclass
class Answer:
    """The text as it arrives, with the time of its first token; thoughts are counted and left out.

    `most` is how many tokens were asked for; `drafts` tells the text so far with the progress.
    """

    watch: Watch
    progress: Progress
    most: int
    drafts: bool = False
    prose: bool = False
    """It is read while it is written; see `ThoughtFilter`."""
    parts: list[str] = field(default_factory=list)
    chunks: int = 0
    """Pieces of text and of thought: about one a token."""
    first_token_s: float | None = None
    _only: ThoughtFilter = field(init=False)
    _bytes: int = 0
    _blanks: int = 0
    _told: float = 0.0

    def __post_init__(self) -> None:
        self._only = ThoughtFilter(prose=self.prose)

    def add(self, text: str, thought: str = "") -> None:
        """Take a piece of text, or count one of thought; raises OutputEndless when it is too much."""
        if not text and not thought:
            return
        elapsed = self.watch.elapsed
        if self.first_token_s is None:
            self.first_token_s = elapsed
        self.chunks += 1
        self._bound(text)
        self.parts.append(self._only.add(text))
        if self.chunks == 1 or elapsed - self._told >= PROGRESS_EVERY_S:
            self._told = elapsed
            self.tell(self.chunks)

    def finish(self, counted: int) -> int:
        """The answer is over; returns its tokens, `counted` by the server or else the pieces.

        What is told stays in pieces: some servers send several tokens in one, and speeds are learned so.
        """
        self.parts.append(self._only.rest())
        self.tell(self.chunks)
        return counted or self.chunks

    def tell(self, tokens: int) -> None:
        """Say how far it is, with the text where it is wanted."""
        if self.drafts:
            self.progress(tokens, "generating", self.text)
        else:
            self.progress(tokens)

    def _bound(self, text: str) -> None:
        self._bytes += len(text.encode("utf-8", "replace"))
        if self._bytes > MAX_TEXT_BYTES:
            raise OutputEndless(TEXT_TOO_LONG(bytes=MAX_TEXT_BYTES))
        # servers count a little differently, and none sends more pieces than tokens
        if self.chunks > 2 * self.most + 100:
            raise OutputEndless(TOO_MANY_TOKENS(tokens=self.most))
        written = len(text.rstrip())
        self._blanks = len(text) - written + (0 if written else self._blanks)
        if self._blanks > MAX_BLANKS:
            raise OutputEndless(ONLY_WHITE_SPACE())

    @property
    def text(self) -> str:
        """All of it so far."""
        return "".join(self.parts)


def lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Lines without their ends; an unfinished last line is given too."""
    rest = bytearray()
    for chunk in chunks:
        rest += chunk
        if b"\n" in chunk:
            *whole, tail = bytes(rest).split(b"\n")
            rest = bytearray(tail)
            for line in whole:
                yield line.rstrip(b"\r")
    if rest:
        yield bytes(rest).rstrip(b"\r")


def wrote_something(nothing: Message, text: str, *, truncated: bool) -> None:
    """Raises OutputTruncated, or OutputEmpty with the message `nothing`, for an answer without a word."""
    if text.strip():
        return
    if truncated:
        raise OutputTruncated(NO_WORD_BEFORE_LIMIT())
    raise OutputEmpty(nothing)


_OPENINGS = {"<think>": "</think>", "<thinking>": "</thinking>"}
_HARMONY = ("<|channel|>", "<|start|>")
_MARK = re.compile(r"<\|(channel|message|start|end|return|call)\|>")
_LONGEST_MARK = len("<|message|>")
_CLOSE = "</think>"
_State = Literal["begin", "text", "thought", "after", "unsure", "harmony"]


class ThoughtFilter:
    """Takes pieces of an answer as they arrive and gives the text without the thoughts.

    Knows `<think>` blocks at the beginning, answers whose block was opened by the prompt's template, and the
    channels of gpt-oss. An answer that begins like JSON or a fence is text at once, so that tags in a quote
    mean nothing; any other is held back until it is over or its thoughts are. With `prose`, which is read
    while it is written, it is text at once, too.
    """

    def __init__(self, *, prose: bool = False) -> None:
        self._prose = prose
        self._state: _State = "begin"
        self._held = ""
        self._close = ""
        self._channel = ""
        self._part: Literal["header", "thought", "text"] = "thought"

    def add(self, piece: str) -> str:
        """The text that is certain now."""
        self._held += piece
        if self._state == "begin":
            self._begin()
        return self._certain(len(piece))

    def rest(self) -> str:
        """What was held back, when the answer is over."""
        if self._state == "harmony":
            return self._within(self._take())  # what began like a mark and was none
        return self._take() if self._state in ("begin", "unsure") else ""

    def _certain(self, new: int) -> str:
        match self._state:
            case "harmony":
                return self._harmony()
            case "thought":
                return self._thought()
            case "unsure":
                return self._unsure(new)
            case "after":
                return self._after(self._held)
            case "text":
                return self._take()
        return ""

    def _take(self) -> str:
        held, self._held = self._held, ""
        return held

    def _begin(self) -> None:
        start = self._held.lstrip()
        if not start:
            return
        if start[0] in "{[`":
            self._state = "text"
            return
        for opening in (*_OPENINGS, *_HARMONY):
            if start.startswith(opening):
                self._state = "thought" if opening in _OPENINGS else "harmony"
                self._close = _OPENINGS.get(opening, "")
                return
            if opening.startswith(start):
                return
        self._state = "text" if self._prose else "unsure"

    def _thought(self) -> str:
        _, found, after = self._held.partition(self._close)
        if not found:
            self._held = self._held[1 - len(self._close) :]
            return ""
        return self._after(after)

    def _unsure(self, new: int) -> str:
        at = self._held.find(_CLOSE, max(0, len(self._held) - new - len(_CLOSE)))
        if at < 0:
            return ""
        return self._after(self._held[at + len(_CLOSE) :])

    def _after(self, held: str) -> str:
        """The text proper begins with the first thing behind the thoughts that is not blank."""
        self._held = held.lstrip()
        self._state = "text" if self._held else "after"
        return self._take()

    def _harmony(self) -> str:
        out = []
        while mark := _MARK.search(self._held):
            out.append(self._within(self._held[: mark.start()]))
            self._held = self._held[mark.end() :]
            if mark[1] == "channel":
                self._part, self._channel = "header", ""
            elif mark[1] == "message":
                self._part = "text" if self._channel.lstrip().startswith("final") else "thought"
            else:
                self._part = "thought"
        cut = self._held.rfind("<")
        if cut < 0 or len(self._held) - cut > _LONGEST_MARK:
            cut = len(self._held)
        out.append(self._within(self._held[:cut]))
        self._held = self._held[cut:]
        return "".join(out)

    def _within(self, part: str) -> str:
        if self._part == "header":
            self._channel = (self._channel + part)[:40]
        return part if self._part == "text" else ""
