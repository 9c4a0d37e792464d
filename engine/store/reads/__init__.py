"""Reads: messages by queue, place, time and key, from memory at once or from the disk in a job."""
