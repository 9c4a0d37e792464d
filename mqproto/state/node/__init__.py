"""Contract of a node, and what every node is made of: connections and deadlines."""
