"""Integration tests of assignments."""
