"""Pages of dry runs and of examples."""
