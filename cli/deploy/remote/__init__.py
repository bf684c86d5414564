"""Programs that are sent to a machine and run there by path, with the standard library only.

The machine may have none of this tree yet: another module of this folder that one imports is sent with it.
"""
