"""End-to-end tests of lti."""
