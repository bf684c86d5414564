"""End-to-end tests of assignments."""
