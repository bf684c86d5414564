"""Messages of installed packages, such as those of engines: announced by entry points of `grader.messages`.

A process that shows messages loads these modules, so that it knows the codes they declare. It needs nothing
else of the packages that machines run.
"""

from __future__ import annotations

import logging
from functools import cache
from importlib.metadata import entry_points

GROUP = "grader.messages"
log = logging.getLogger(__name__)


@cache
def load_installed_messages() -> None:
    """Import the modules; one that is broken is logged, and its messages are shown in English."""
    for one in sorted(entry_points(group=GROUP)):
        try:
            one.load()
        except Exception:
            log.exception("the messages of the plugin %s could not be loaded", one.name)
