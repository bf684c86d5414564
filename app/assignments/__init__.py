"""Pages of an assignment.

What is submitted for it belongs to app.submissions.
"""
