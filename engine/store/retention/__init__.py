"""Retention: which files are deleted when, and when the disk has no room."""
