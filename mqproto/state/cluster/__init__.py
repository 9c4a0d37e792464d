"""Knowledge of a cluster: name servers, routes, addresses of brokers, and offsets of their queues."""
