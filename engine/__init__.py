"""Servers without sockets, threads and clocks: what a broker and a name server decide, and the store."""
