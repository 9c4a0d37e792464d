"""Consumers: parts of all kinds. The kinds are in `push` and `pull`, the allocation of queues is in `allocation`."""
