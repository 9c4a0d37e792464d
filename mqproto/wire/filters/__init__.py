"""Which messages a consumer wants: by tags, by SQL92 expressions, and the Bloom filter that brokers make of the
latter.
"""
