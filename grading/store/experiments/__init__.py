"""Gradings that do not count: dry runs, examples and what they change."""
