"""The policy gate: which calls are allowed, which are denied, and which an operator must approve first."""
