"""Methods of clients and servers that wait, as coroutines. `mqproto.adapters.sync` is generated from them."""
