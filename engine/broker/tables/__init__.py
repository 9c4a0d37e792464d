"""Tables of the broker: topics, subscription groups, offsets and delay progress, and when they are saved."""
