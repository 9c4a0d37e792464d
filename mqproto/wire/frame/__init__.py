"""Frame of the remoting protocol: the command in it, its header in both serialisations, and its bounds in a stream."""
