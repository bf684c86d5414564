"""Unit tests of broker."""
