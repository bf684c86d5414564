"""Serving the web app and the gateway over HTTP."""
