"""The composition root and everything that people type: `grader` with its commands.

Only here are `app` and `workers` put together. Rules and queries belong in `grading`.
"""
