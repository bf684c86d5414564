"""Attacks on broker."""
