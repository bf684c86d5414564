"""What tests share: real services, model servers, factories.

No tests.
"""
