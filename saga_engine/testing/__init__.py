"""For tests of this engine and of its users: fault injection, a ledger, a cutting proxy, store conformance suites."""
