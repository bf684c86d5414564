"""Pure functions about the machines: waiting times now, routing and speeds later."""
