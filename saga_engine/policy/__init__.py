"""The policy gate: which calls may be made, which may not, and which a person has to approve first."""
