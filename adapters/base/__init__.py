"""Public clients as far as it does not matter how they wait: arguments, checks, hooks, and the verbs that enter the
node.
"""
