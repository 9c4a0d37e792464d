"""Index: from keys of messages to their places in the log."""
