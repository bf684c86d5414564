"""Canvas courses in the database: links, attempts and the scores sent.

Canvas's API belongs to grading.integrations.canvas, sending to workers.server.delivery.
"""
