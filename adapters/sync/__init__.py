"""Methods of clients and servers that wait, as plain calls. Most are generated from `mqproto.adapters.coroutines`."""
