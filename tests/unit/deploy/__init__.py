"""Unit tests of deploy."""
