"""Unit tests of statistics."""
