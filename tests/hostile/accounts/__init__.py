"""Attacks on accounts."""
