"""Content of a frame: codes, flags, names, ids, properties, records, and the headers and bodies of requests
(docs/protocol/wire.md).
"""
