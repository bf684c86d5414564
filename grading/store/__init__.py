"""The SQL store: the truth about submissions, rounds, runs and grades."""

from grading.store.database import Store, now

__all__ = ["Store", "now"]
