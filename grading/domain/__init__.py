"""Values and rules without input or output: submissions, jobs, reports, rubrics, permissions.

Nothing here reads a file, a table or a queue.
"""
