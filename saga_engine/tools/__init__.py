"""CALLS OF TOOLS: the decorator that declares a tool, the registry, and the interpretation of answers."""
