"""Requests of web processes to models, behind all grading: slots, streamed answers, errors.

The API for other tools belongs to app.gateway.
"""
