"""Integration tests of engines."""
