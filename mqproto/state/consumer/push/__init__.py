"""Push consumers: concurrent and orderly consumption, and the simple consumer, which receives and acknowledges."""
