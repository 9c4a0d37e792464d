"""Views of a data directory: files read without the lock and without changing a byte."""
