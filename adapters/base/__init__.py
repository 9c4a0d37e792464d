"""Clients as far as it does not matter how they wait: arguments, checks, hooks, the verbs that enter the node."""
