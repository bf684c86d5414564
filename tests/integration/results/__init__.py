"""Integration tests of results."""
