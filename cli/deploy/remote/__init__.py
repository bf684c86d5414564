"""Programs that run on the machine that is deployed to, with the standard library only."""
