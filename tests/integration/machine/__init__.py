"""Integration tests of machine."""
