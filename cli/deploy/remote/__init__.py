"""Programs that are sent to a machine and run there by path, with the standard library only.

Nothing here imports another module of this tree: the machine may have none of it yet.
"""
