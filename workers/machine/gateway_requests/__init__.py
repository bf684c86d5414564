"""Requests of other tools that come by the gateway, behind all grading."""
