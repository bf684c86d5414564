"""What every page uses: sign-in state, translations, templates, errors, security and charts.

Pages belong to their capability.
"""
