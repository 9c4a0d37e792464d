"""Requests of operators: topics, groups, configuration, progress, clean-up, runtime information."""
