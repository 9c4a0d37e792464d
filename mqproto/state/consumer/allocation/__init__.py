"""Allocation of queues to the members of a consumer group."""
