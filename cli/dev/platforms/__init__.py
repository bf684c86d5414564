"""Learning platforms to try Grader with, for this computer only: a Moodle and a Canvas.

They behave as the source of Moodle 5 and of Canvas in 2026 does, which was read and not copied; each module
names the files. They believe whoever says who they are. Clients of real platforms belong elsewhere.
"""
