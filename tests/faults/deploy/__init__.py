"""Faults of deploy."""
