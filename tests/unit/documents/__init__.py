"""Unit tests of documents."""
