"""The commands of `grader`, several of one subject in a module.

They read arguments, call `grading`, `app` or `workers`, and print; deployment and diagnostics have packages.
"""
