"""Integration tests of bench."""
