"""Faults of broker."""
