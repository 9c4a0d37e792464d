"""Hooks of producers and consumers: lists of them, and when they are called."""
