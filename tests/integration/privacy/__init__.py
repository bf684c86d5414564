"""Integration tests of privacy."""
