"""Checks of a data directory against itself: log, queues, index."""
