"""Faults of sandbox."""
