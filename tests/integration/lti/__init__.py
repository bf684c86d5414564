"""Integration tests of lti."""
