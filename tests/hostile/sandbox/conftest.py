"""The corpus is input, not tests: some of it is even named like tests and their settings."""

collect_ignore = ["programs"]
