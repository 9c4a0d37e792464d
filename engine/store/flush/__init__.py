"""Flush: what becomes durable when, checkpoint and manifest, and the orderly end of a store."""
