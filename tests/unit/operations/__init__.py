"""Unit tests of operations."""
