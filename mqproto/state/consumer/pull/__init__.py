"""Pull consumers: the application asks for messages, itself (`pull`) or ahead of its polls (`lite_pull`)."""
