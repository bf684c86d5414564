"""Learning platforms by LTI 1.3: launches, frames, choosing, the pages of administrators and of a course."""
