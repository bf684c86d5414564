"""Unit tests of project."""
