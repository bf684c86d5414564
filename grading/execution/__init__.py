"""Plans and results of sandbox runs, as values.

Starting a sandbox belongs to workers.sandbox, judging the results to grading.checks.
"""
