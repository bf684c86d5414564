"""What the web app, the workers and the commands share: the domain, its rules and its storage.

Flask belongs to app, engines to workers.machine; each package here imports only those below it.
"""
