"""Unit tests of tabular."""
