"""Consume queues: places of messages in the log, by topic and queue."""
