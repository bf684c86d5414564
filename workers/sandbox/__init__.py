"""The sandbox worker, which runs students' work (Celery queues `sandbox` and `sandbox.batch`).

Planning a run and judging its results belong to grading.execution and grading.checks.
"""
