"""Integration tests of store."""
