"""Courses, rosters, groups and invitations.

What is graded in them belongs elsewhere.
"""
