"""Producers: sends, their fast path, batches, transactions, request-reply, fault tolerance and trace."""
