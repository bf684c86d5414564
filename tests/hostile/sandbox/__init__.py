"""Attacks on sandbox."""
