"""Broker: one module for each family of requests (docs/requests.md lists them all)."""
