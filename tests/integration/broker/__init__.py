"""Integration tests of broker."""
