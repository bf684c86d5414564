"""Benchmarks of the whole system, which may import everything; nothing imports them but tests.

`grader bench` finds them by name. What runs in service does not belong here, nor do one-off studies.
"""
