"""The ways to make a sandbox in which a stranger's program runs: bubblewrap, containers, none.

What runs inside it belongs to workers.sandbox.drivers, which language it needs to workers.sandbox.runtimes.
"""

from workers.sandbox.backends.selection import open_backend

__all__ = ["open_backend"]
