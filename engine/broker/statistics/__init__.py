"""Statistics of the broker: counters of topics and groups, figures of the store."""
