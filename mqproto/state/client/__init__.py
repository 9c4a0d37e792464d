"""Client node: what the producers and consumers of one client id share."""
