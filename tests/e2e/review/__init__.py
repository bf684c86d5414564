"""End-to-end tests of review."""
