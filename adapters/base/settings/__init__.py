"""Options of clients: which there are, and the settings that they stand for."""
