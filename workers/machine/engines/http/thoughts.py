"""Sets a model's thoughts apart where its server leaves them in the text."""

from __future__ import annotations

import re
from typing import Literal

_OPENINGS = {"<think>": "</think>", "<thinking>": "</thinking>"}
_HARMONY = ("<|channel|>", "<|start|>")
_MARK = re.compile(r"<\|(channel|message|start|end|return|call)\|>")
_LONGEST_MARK = len("<|message|>")
_CLOSE = "</think>"
_State = Literal["begin", "text", "thought", "after", "unsure", "harmony"]


class TextOnly:
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
