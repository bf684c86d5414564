"""LTI 1.3 Advantage: the messages between this tool and a learning platform.

Platforms in the database belong to grading.store.integrations.lti, requests of browsers to app.platforms.lti.
"""
