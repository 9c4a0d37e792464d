"""Filters of messages: by tags, by SQL92 expressions, and the Bloom filter that brokers make of the latter."""
