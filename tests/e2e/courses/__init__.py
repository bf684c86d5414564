"""End-to-end tests of courses."""
