"""Unit tests of what grades can be trusted for."""
