"""Pages of a course: its settings, roster, groups and extensions."""
