"""Sends: from a request to a stored message and its answer, also delayed, given back, or a reply."""
