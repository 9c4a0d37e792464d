"""Clients of the broker: heartbeats, queue locks, and what operators ask clients through the broker."""
