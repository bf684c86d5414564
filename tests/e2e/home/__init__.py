"""End-to-end tests of home."""
