"""Unit tests of execution."""
