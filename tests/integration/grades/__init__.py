"""Integration tests of grades."""
