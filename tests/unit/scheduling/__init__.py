"""Unit tests of scheduling."""
