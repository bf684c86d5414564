"""Delivery to other systems: webhooks, mail, LTI and Canvas."""
