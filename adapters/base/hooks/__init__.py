"""Hooks of producers and consumers: which there are, and calling them."""
