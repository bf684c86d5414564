"""Other systems: HTTP, mail, LTI and Canvas, without a database.

What was told to them and when belongs to grading.store.integrations.
"""
