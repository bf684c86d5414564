"""The resources of the API, a module each.

How a request is parsed and answered belongs to app.api.
"""
