"""Changes by reviewers: edits, second marking, curves, comments and regrade requests.

Reading for their pages belongs to grading.store.views.
"""
