"""Integration tests of web."""
