"""Unit tests of scoring."""
