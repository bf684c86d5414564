"""Integration tests of project."""
