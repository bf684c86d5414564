"""Links to learning platforms and webhooks: registrations, deliveries, scores.

Talking to them belongs to workers.server.delivery.
"""
