"""Frame of the remoting protocol: the command in it, its header in both serialisations, and where it ends in a stream."""
