"""Serving the web app and the gateway over HTTP, with bounds on connections.

Routes and what they answer belong in `app`.
"""
