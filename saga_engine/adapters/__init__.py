"""Sessions for code that was written without them: agents that block, and agents of other frameworks."""
