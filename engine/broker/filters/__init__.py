"""Filters: which messages a pull gets, by tags or by SQL92 expressions."""
