"""Integration tests of statistics."""
