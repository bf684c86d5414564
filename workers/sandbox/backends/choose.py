"""Which sandbox there is on this machine."""

from __future__ import annotations

from typing import Literal

from workers.sandbox.backends.base import Sandbox
from workers.sandbox.backends.bubblewrap import Bubblewrap
from workers.sandbox.backends.container import Container
from workers.sandbox.backends.none import ELSE, NOTHING, NoSandbox

Kind = Literal["auto", "bubblewrap", "container", "none"]
TURNED_OFF = 'Nothing that students hand in is run here: checks.sandbox is set to "none".'


def open_sandbox(kind: Kind, *, engine: str = "", image: str = "") -> Sandbox:
    """The sandbox of that kind, whether or not it works; its `problem` tells.

    `auto` is bubblewrap where a box really opens, else a container where engine and image are named, else
    none, whose problem says what kept bubblewrap from working.
    """
    if kind == "bubblewrap":
        return Bubblewrap()
    if kind == "container":
        return Container(engine, image)
    if kind == "none":
        return NoSandbox(TURNED_OFF)
    own = Bubblewrap()
    problem = own.problem()
    if not problem:
        return own
    return Container(engine, image) if engine and image else NoSandbox(f"{NOTHING} {problem} {ELSE}")
