"""I/O that all drivers share: the loop over sockets, callers' access to a node, dialling, TLS, the life of a driver."""
