"""Unit tests of shared."""
