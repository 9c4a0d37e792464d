"""Core of the broker: links, time, tables, and answers that wait for the disk or for a message."""
