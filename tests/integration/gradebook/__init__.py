"""Integration tests of gradebook."""
