"""Read models of pages and of the API, a module each.

Nothing here writes.
"""
