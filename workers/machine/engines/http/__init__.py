"""What engines over HTTP share: transport, limits, retries and errors.

What one server says belongs to its engine.
"""
