"""Attacks on web."""
