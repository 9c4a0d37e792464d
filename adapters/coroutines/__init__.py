"""Methods of clients that wait, as coroutines: the same as in `mqproto.adapters.sync`, with `async` and `await`."""
