"""Grades: extensions, lateness, release and the final score.

Changes by reviewers belong to grading.store.review.
"""
