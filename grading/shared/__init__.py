"""What every process needs: logs, traces, caches, message catalogues, the version of the software.

Nothing here knows what grading is.
"""
