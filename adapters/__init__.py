"""Runtimes of nodes: a driver for each, public clients and servers, the command line, and the simulator."""
