"""What leaves the server after it is written down: events, mail, scores of learning platforms.

What is to be sent stands in the outbox of grading.store; the protocols belong to grading.integrations.
"""
