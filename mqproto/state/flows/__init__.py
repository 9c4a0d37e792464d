"""Flows: operations that are a sequence, the effects that they yield, and the calls and tasks that carry them out."""
