"""Comparison of values, tables and outputs with what is expected.

The points for it belong to `grading.checks.kinds`.
"""
