"""What runs on a machine when: the queues it reads, how many runs at once, and how fast it works.

The rules themselves belong to grading.scheduling.
"""
