"""What stands around a session for its agent's sake: tools that nobody declared, guards against loops, observing."""
