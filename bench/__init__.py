"""Benchmarks of the whole system, which may import everything.

Only tests import them; `grader bench` finds them by name. What runs in service does not belong here, nor do
one-off studies.
"""
