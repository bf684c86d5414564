"""Plays a student's document and answers questions about it, beside the code it runs.

Started in the sandbox as `python -s -B -S python_submission.py`; JSON lines on stdin and stdout are the
conversation, which the document itself does not see. Standard library only, Python 3.9 or newer. Nothing here
has to be believed: whatever comes out of the sandbox is data to the server, and no expected value comes in.
"""

from __future__ import annotations

TYPE_CHECKING = False  # the module typing takes a third of the start
if TYPE_CHECKING:
    from typing import Any

import os
import sys

_OURS = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, _OURS)

from python_common import Line, needs_site
from python_document import Player
from python_evaluate import Asker

sys.path[:] = [path for path in sys.path if path != _OURS]

_exit, _getpid = os._exit, os.getpid


class Driver:
    """The conversation with the server."""

    def __init__(self) -> None:
        self.home = _getpid()
        self.line = Line.take_over()
        self.player: Player | None = None
        self.asker = Asker(self.line, self.say)
        self.keeper: Any = None

    def say(self, event: dict[str, Any]) -> None:
        """One event; a copy of this process that the work made by forking ends here instead."""
        if _getpid() != self.home:
            _exit(0)
        self.line.write(event)

    def serve(self) -> None:
        """Answers until the server says `end` or goes away."""
        while True:
            message = self.line.read()
            if message is None or message.get("do") == "end":
                _exit(0)
            do = message.get("do")
            if do == "play":
                self.player = Player(message, self.say)
                self.player.play()
                self.say({"event": "played"})
            elif do == "look":
                self.say(self.asker.look(self.space(), str(message["name"])))
            elif do == "ask":
                self.say(self.asker.ask(self.space(), message["code"], float(message.get("seconds", 5))))
            elif do == "remote":
                self.say({"event": "remote", "body": self.remote(message)})

    def space(self) -> dict[str, Any]:
        """The names of the work."""
        return self.player.space if self.player else {"__name__": "__main__"}

    def remote(self, message: dict[str, Any]) -> dict[str, Any]:
        """A call by the tests, from the other sandbox."""
        if self.keeper is None:
            sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
            try:
                from python_object_server import Keeper
            finally:
                del sys.path[0]
            self.keeper = Keeper(self.space(), self.line, self.say)
        return dict(self.keeper.serve(message.get("body"), float(message.get("seconds", 5))))


def run() -> None:
    """The whole conversation."""
    needs_site()
    Driver().serve()


if __name__ == "__main__":
    run()
