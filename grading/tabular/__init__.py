"""Grades, rosters and groups as CSV text.

Reading and writing their rows belongs to grading.store.
"""
