"""Unit tests of similarity."""
