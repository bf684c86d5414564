"""A small learning platform to try LTI 1.3 with: login, launches in a frame, deep linking, scores, rosters.

It believes whoever says who they are, so it is for this computer only.
"""
