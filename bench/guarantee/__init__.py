"""Whether the guarantee of release holds: simulated classes, planted graders, errors that are known."""
