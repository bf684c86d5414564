"""Deployment of machines over SSH: packages, models, the services of systemd and launchd.

Programs that run on the other machine are in `remote`. What a started worker does belongs in `workers`.
"""
