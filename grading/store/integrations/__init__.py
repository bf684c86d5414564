"""What other systems are linked to, what they were told and what is due.

Talking to them belongs to workers.server.delivery.
"""
