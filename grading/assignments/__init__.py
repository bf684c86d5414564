"""Assignments as folders of files: reading, writing and importing them.

Rows of assignments belong to grading.store.assignments.versions.
"""
