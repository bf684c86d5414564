"""Diagnostics of `grader doctor`: each module yields findings, and none raises for what it examines.

Nothing here changes an installation; the diagnostics of a learning platform are in its command's module.
"""
