"""Faults of machine."""
