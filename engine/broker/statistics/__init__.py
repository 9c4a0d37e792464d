"""Statistics of the broker, and its metrics."""
