"""Attacks on stages."""
