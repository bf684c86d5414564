"""Unit tests of results."""
