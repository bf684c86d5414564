"""Integration tests of courses."""
