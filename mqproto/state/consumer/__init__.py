"""Consumers: what all kinds share. The kinds are in `push` and `pull`, the sharing out of queues in `allocation`."""
