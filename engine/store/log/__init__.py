"""Commit log: its files, and the records in them."""
