"""The benchmark of pages: a large school, and the time of every page.

Time limits of single pages and counts of queries belong to the tests.
"""
