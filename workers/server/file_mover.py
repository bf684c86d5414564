"""Moves large files to the object store and deletes objects, a small step at a time."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from datetime import timedelta

from sqlalchemy.exc import DBAPIError

from grading.domain.errors import FileDamaged, FilesUnavailable
from grading.store import blob_moves, periodic_tasks
from grading.store.away import why_away
from grading.store.object_store import ObjectStore
from workers.server.context import Server

log = logging.getLogger(__name__)
TASK = "move files"
EVERY_S = 5.0
"""Between steps, of 16 MiB: grading and people come first. `grader files to-store` does not wait."""
AWAY_S = 30.0
"""Until the next step, after one that failed."""


@dataclass(frozen=True)
class FileMover:
    """Any number of processes may have one; the database's clock says which of them does the next step."""

    server: Server
    stop: threading.Event = field(default_factory=threading.Event)

    def start(self) -> threading.Thread:
        """Move files until `stop`, in a thread of its own: the sweeper must not wait for an object store."""
        thread = threading.Thread(target=self._run, name="files")
        thread.start()
        return thread

    def _run(self) -> None:
        objects = self.server.store.objects
        while objects is not None and not self.stop.is_set():
            wait_s = AWAY_S
            try:
                self.step(objects)
                wait_s = EVERY_S
            except FilesUnavailable:
                log.warning("files are moved to the object store later; they stay in the database until then")
            except FileDamaged:
                log.error("the object store returned other bytes than were written; nothing is moved to it")
            except DBAPIError as error:
                log.warning("%s, files are moved later: %s", why_away(error), error)
            except Exception:
                log.exception("moving files failed, retrying")
            self.stop.wait(wait_s)

    def step(self, objects: ObjectStore) -> blob_moves.Moved:
        """Delete what is due, then move some files. Raises FilesUnavailable and FileDamaged."""
        with self.server.store.write() as session:
            periodic_tasks.schedule(session, TASK)
            if periodic_tasks.claim(session, TASK) is None:
                return blob_moves.Moved()
        deleted = blob_moves.delete_objects(self.server.store, objects)
        moved = blob_moves.Moved()
        if objects.larger_than:
            moved = blob_moves.move_to_objects(self.server.store, objects)
        if deleted or moved.blobs:
            log.info("object store: %d files moved to it, %d objects deleted", moved.blobs, deleted)
        with self.server.store.write() as session:
            periodic_tasks.reschedule(session, TASK, timedelta(seconds=EVERY_S - 1))
        return moved
