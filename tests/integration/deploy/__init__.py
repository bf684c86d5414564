"""Integration tests of deploy."""
