"""Integration tests of experiments."""
