"""Integration tests of operations."""
