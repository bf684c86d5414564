"""The commands of `grader`, a module each.

Deployment and diagnostics have packages of their own.
"""
