"""Unit tests of domain."""
