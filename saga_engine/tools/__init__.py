"""CALLING THE WORLD: the decorator that declares a tool, the registry, and what the answers of tools mean."""
