"""Users, their sessions, passwords and tokens.

Who is in which course belongs to grading.store.courses.
"""
