"""Gradings that do not count: dry runs, examples, and what a new version would change.

Gradings that count belong to grading.store.rounds.
"""
