"""Integration tests of sandbox."""
