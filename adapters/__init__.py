"""What runs nodes: a driver for each runtime, public clients and servers, the command line, and a simulated world."""
