"""Public clients for every runtime in which waiting is a plain call; what a runtime brings is in `runtime`."""
