"""Pages of operators and administrators: health, machines, deliveries, metrics and the audit log."""
