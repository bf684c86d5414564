"""Unit tests of engines."""
