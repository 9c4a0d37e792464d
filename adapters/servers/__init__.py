"""Servers: settings, ports, store and node of each, ready to be driven; their metrics."""
