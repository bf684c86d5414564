"""Integration tests of cli."""
