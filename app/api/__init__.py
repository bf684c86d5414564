"""The HTTP API: `routes.py` is its table, `rooms.py` puts it into an app, and each room has a module."""
