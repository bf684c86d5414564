"""Integration tests of gateway."""
