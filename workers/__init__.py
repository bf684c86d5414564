"""The Celery workers and the sweeper.

Pages and the API belong to app; rules, the broker and the database to grading.
"""
