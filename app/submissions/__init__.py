"""Submitting work and its status until it is graded.

The result belongs to app.results.
"""
