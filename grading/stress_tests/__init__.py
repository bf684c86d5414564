"""Variants of submissions for the stress test of a rubric: a pure function each, nothing is run or stored.

The corpus of attacks stands here. The signs by which attacks are recognised belong to
grading.checks.manipulation, runs and results to grading.store.trust.
"""
