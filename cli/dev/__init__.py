"""What runs on one computer only: the local stack, an embedded Redis, a test platform for LTI.

Nothing of it is needed where parts run as services.
"""
