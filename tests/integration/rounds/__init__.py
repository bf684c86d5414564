"""Integration tests of rounds."""
