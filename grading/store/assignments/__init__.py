"""Assignments, the versions of their rubrics and their settings.

Files of an assignment belong to grading.assignments.
"""
