"""How the web app itself asks a model, behind all grading: connections and the talk with a machine.

The API for other tools belongs to app.gateway.
"""
