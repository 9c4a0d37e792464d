"""Transactions: half messages, their end, and the check of those that nobody ended."""
