"""Logs, traces and small caches that every process needs.

Nothing here knows what grading is.
"""
