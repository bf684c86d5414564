"""Unit tests of stages."""
