"""The life of a round, one grading of a submission: prepared, queued, dispatched, recorded.

Its end belongs to grading.store.completion.
"""
