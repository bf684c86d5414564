"""A Canvas by its REST API, for schools that cannot use LTI."""
