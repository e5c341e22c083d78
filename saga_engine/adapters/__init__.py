"""Sessions for code written without them: blocking agents, and agents of other frameworks."""
