"""Integration tests of submissions."""
