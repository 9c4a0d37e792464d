"""Pull consumers: the application pulls itself (`pull_consumer`), or polls what was pulled (`lite_pull_consumer`)."""
