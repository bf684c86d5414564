"""Pure functions about the machines of a cluster: routing, speeds, expected times, circuit breaker, stalls.

Their states in Redis belong to grading.broker.
"""
