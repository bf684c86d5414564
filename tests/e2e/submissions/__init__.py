"""End-to-end tests of submissions."""
