"""Pulls: reading queues, finding messages by key, offsets of queues and consumers."""
