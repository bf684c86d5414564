"""Faults of harness."""
