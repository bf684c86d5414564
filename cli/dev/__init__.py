"""What runs on a developer's computer only: the local system, an embedded Redis, a test platform."""
