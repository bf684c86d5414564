"""Integration tests of review."""
