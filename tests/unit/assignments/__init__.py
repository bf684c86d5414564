"""Unit tests of assignments."""
