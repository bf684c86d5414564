"""Redis and Celery: dispatch, leases, heartbeats, rights.

What is true for longer than a run belongs to grading.store.
"""
