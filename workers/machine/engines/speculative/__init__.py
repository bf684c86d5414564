"""Speculative decoding: a small model proposes the next tokens, the model checks them in one step."""
