"""The benchmark of routing: emulated machines, a lower bound, scenarios, the product beside other routers.

Figures of real engines and of the rest of the system do not belong here.
"""
