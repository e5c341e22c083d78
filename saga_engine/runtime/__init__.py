"""Execution: the driver of one saga, the performer of effects, the group-commit writer, the lease."""
