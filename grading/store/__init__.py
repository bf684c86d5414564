"""The SQL store: the truth about submissions, rounds, runs and grades.

Messages between processes belong to grading.broker; each package here imports only those below it.
"""

from grading.store.database import Store, now, open_store

__all__ = ["Store", "now", "open_store"]
