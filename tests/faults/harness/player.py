"""Plays scenarios: `python -m tests.faults.harness.player FOLDER MODULE…`. It outlives the command."""

from __future__ import annotations

import fcntl
import importlib
import logging
import os
import pickle
import sys
import threading
import traceback
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from grading.store import schema
from tests.faults.harness.scenes import ASKED, PLAYED
from tests.support import network_guard, system
from tests.support.services import SqliteDatabases

AT_ONCE = 3
"""So few that starting them all does not starve what is tested beside them, or themselves."""


def play_all(folder: Path, modules: list[str]) -> None:
    """Play them and tell what came of each; give up when nobody asks any more."""
    threading.Thread(target=give_up_unasked, args=(folder,), daemon=True).start()
    databases = SqliteDatabases(folder)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for module in modules:
            place = folder / module.removeprefix("tests.faults.")  # some are called alike
            place.mkdir()
            play = importlib.import_module(module).play
            one = pool.submit(play, place, databases.fresh(schema.upgrade))
            one.add_done_callback(partial(tell, folder / f"{module}.outcome"))


def give_up_unasked(folder: Path) -> None:
    """Let all waiting come to an end when no test process lives any more."""
    with (folder / ASKED).open("w") as asked:
        fcntl.flock(asked, fcntl.LOCK_EX)
    system.GIVEN_UP.set()


def tell(place: Path, ended: Future[Any]) -> None:
    """Whether it went well, and what came of it or what went wrong."""
    error = ended.exception()
    value = ended.result() if error is None else "".join(traceback.format_exception(error))
    unseen = place.with_suffix(".unseen")
    unseen.write_bytes(pickle.dumps((error is None, value)))
    unseen.rename(place)


def main() -> None:
    """Become nobody's child, and play."""
    logging.getLogger("grader_client").setLevel(logging.ERROR)  # it retries, as web apps are killed here
    folder = Path(sys.argv[1])
    played = (folder / PLAYED).open("w")
    fcntl.flock(played, fcntl.LOCK_EX)  # inherited: held until the one that goes on has ended
    if os.fork():
        os._exit(0)
    os.setsid()
    with pytest.MonkeyPatch.context() as patch:
        network_guard.install(patch)
        play_all(folder, sys.argv[2:])


if __name__ == "__main__":
    main()
