"""Faults of store."""
