"""How reports read on pages."""
