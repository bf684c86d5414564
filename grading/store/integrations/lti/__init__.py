"""Learning platforms in the database: registrations, launches, rosters and the scores sent.

LTI messages belong to grading.integrations.lti, sending to workers.server.delivery.
"""
