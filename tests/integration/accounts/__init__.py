"""Integration tests of accounts."""
