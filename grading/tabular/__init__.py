"""Grades, rosters and groups as CSV, without a database."""
