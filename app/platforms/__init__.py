"""What pages show of learning platforms: a package each, found by the names in grading.domain.

What pages of a course show of all of them belongs to app.courses.
"""
