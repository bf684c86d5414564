"""What pages show of learning platforms; a package each, found by the names of grading.domain.

What pages of a course show of all of them belongs to app.courses.
"""
