"""The cluster, emulated: what machines cost in time, and what ways of routing make of it."""
