"""Recovery: what is true when a data directory is opened."""
