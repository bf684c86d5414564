"""Unit tests of sandbox."""
